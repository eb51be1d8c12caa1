"""Good documents of every format, to be broken."""

HTML = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>A &amp; b</title><style>p > b {}</style></head>
<body><!-- c --><p class="x">One <a href="/y?a=b&amp;c">two <em>three</em></a>, four.<br>Five&nbsp;€ <code>x()</code>
here.</p><ul><li>{name} is %s<li>last</ul><pre>a  b</pre>
<p>Unclosed <b>bold <i>both</b> italic</i><img src=x>end<script>if (a < b) {}</script></body></html>
"""
MARKDOWN = """---
title: x
---
# A *fine* title #

Text with `code`, **bold _both_** and [link *to*](https://a.org/b_(c) "d").
It goes on <b>here</b>, ![image](a.png) ~~gone~~ \\*no\\* [ref].

> A quotation
> in two lines.\x20\x20
> More\\
lazy

1. one
   - [ ] two

| a | `b\\|c` |
|---|--:|
| d \\| e | **f** |

```py
code
```

[ref]: https://a.org
"""
SUBTITLES = """1
00:00:01,000 --> 00:00:02,500 X1:1
<i>Hello</i> there,
my friend.

2
00:00:03,000 --> 00:00:04,000
- Hi.
- Bye.
"""
WEBVTT = """WEBVTT

NOTE a comment

1
00:01.000 --> 00:02.500 align:start
<v Ann>Hello</v> there,
my <00:02.000>friend.

00:00:03.000 --> 00:00:04.000
- Hi.
- Bye.
"""
CATALOGUE = r"""# c
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"

#: a.c:1
#, c-format
msgid "%d file in {folder}"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""

#, fuzzy
#| msgid "Older"
msgctxt "menu"
msgid "Old <b>cat</b>\n"
msgstr "x"

msgid "Open"
msgstr "Abrir"

#~ msgid "a"
#~ msgstr "b"
"""
XLIFF = """<?xml version="1.0"?>
<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" version="1.2"><file source-language="en"><body>
<trans-unit id="1"><source>Click <g id="1">here <x id="2"/>now</g>, {name}.</source></trans-unit>
<trans-unit id="2" xml:space="preserve"><source>One,
  two <bpt id="1">b</bpt>three<ept id="1">e</ept></source><target state="new">x</target></trans-unit>
</body></file></xliff>
"""
XLIFF_2 = """<xliff version="2.0" srcLang="en"><file><unit><segment state="initial">
<source>A <pc id="1">b</pc><ph id="2"/> <mrk translate="no">c</mrk></source>
</segment></unit></file></xliff>
"""
TMX = """<?xml version="1.0"?>
<!DOCTYPE tmx>
<tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="en-US"><seg>Click <bpt i="1">{b}</bpt>here<ept i="1">{/b}</ept> <hi>now</hi></seg></tuv></tu>
<tu><tuv lang="EN"><seg>old</seg></tuv><tuv xml:lang="es"><seg>viejo</seg></tuv></tu>
</body></tmx>
"""
