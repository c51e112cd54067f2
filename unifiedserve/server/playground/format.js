/** Numbers as people read them. */

export function milliseconds(ms) {
  if (ms === undefined || Number.isNaN(ms)) return "–";
  if (ms >= 10_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms >= 1000) return `${(ms / 1000).toFixed(2)} s`;
  return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
}

export function bytes(count) {
  if (count >= 2 ** 30) return `${(count / 2 ** 30).toFixed(1)} GiB`;
  if (count >= 2 ** 20) return `${(count / 2 ** 20).toFixed(1)} MiB`;
  return `${Math.max(1, Math.round(count / 1024))} KiB`;
}

export function clock(seconds) {
  const minutes = Math.floor(seconds / 60);
  const rest = (seconds - 60 * minutes).toFixed(1);
  return minutes ? `${minutes}:${rest.padStart(4, "0")}` : `${rest} s`;
}
