"""What a translation has exactly as its source: placeholders, tags, addresses, code."""

import re

KEPT = re.compile(
    r"""(
    \x01                                                            # OBJECT, which stands for markup
  | </?[A-Za-z][^<>]*> | <!--(?:(?!<!--)[\s\S])*?-->                # tags; comments in linear time
  | &(?:[A-Za-z]\w*|\#\d+|\#[xX][\dA-Fa-f]+);                       # entities
  | (?:https?|ftp)://[^\s<>"']*[\w/] | www\.[\w-]+\.[^\s<>"']*[\w/]
  | [\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+                               # mail addresses; 64: RFC 5321, and linear time
  | ``[\s\S]+?`` | `[^`]+`                                          # code
  | [$\#%@]?\{\{[^{}]*\}\} | [$\#%@]?\{[^{}]*\}                     # {name}, ${name}, {{ name }}
  | %(?:\(\w+\)|\d+\$)?[-+\#]*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh?|ll?|[jztL])?[diouxXeEfFgGaAcrs@]
  | %% | %\d+ | %[A-Za-z_]\w*% | \$[A-Za-z_]\w*                     # %1, %NAME%, $name
  | \\[A-Za-z]                                                      # a line end written \n
  | \b[A-Za-z]\w*_\w+\b                                             # names_in_programs
    )""",
    re.VERBOSE,
)
