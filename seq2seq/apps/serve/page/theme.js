// Light or dark as the system says, until somebody chooses. Not a module: it runs before anything is drawn.

(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const read = () => {
    try {
      return localStorage.getItem("theme");
    } catch {
      return null; // storage is refused: the choice lasts as long as the page
    }
  };
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  if (["light", "dark"].includes(read())) root.dataset.theme = read();
  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const tell = () => (button.textContent = isDark() ? "Light" : "Dark");
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      try {
        localStorage.setItem("theme", root.dataset.theme);
      } catch {
        // as above
      }
      tell();
    });
    system.addEventListener("change", tell);
    tell();
  });
})();
