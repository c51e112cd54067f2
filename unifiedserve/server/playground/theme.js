/** Light, dark, or as the system has it. */

const ORDER = ["auto", "light", "dark"];

export function setUpTheme(button) {
  let chosen = ORDER.includes(localStorage.theme) ? localStorage.theme : "auto";
  const apply = () => {
    document.documentElement.dataset.theme = chosen;
    button.textContent = `Theme: ${chosen}`;
  };
  button.addEventListener("click", () => {
    chosen = ORDER[(ORDER.indexOf(chosen) + 1) % ORDER.length];
    localStorage.theme = chosen;
    apply();
  });
  apply();
}
