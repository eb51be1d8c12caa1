// Gives the live model the theme that the reader chose for the site.

addEventListener("DOMContentLoaded", () => {
  const frame = document.querySelector("iframe.live");
  if (frame === null) return;
  const follow = () => {
    const root = frame.contentDocument?.documentElement; // not there from a file, where pages may not reach each other
    const { theme } = document.body.dataset;
    if (root && theme && theme !== "auto") root.dataset.theme = theme;
    else if (root) delete root.dataset.theme;
  };
  frame.addEventListener("load", follow);
  new MutationObserver(follow).observe(document.body, { attributeFilter: ["data-theme"] });
});
