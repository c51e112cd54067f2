/** Which workers there are, what they host, and which of them are about to host something else. */

/** One line of text; stages that a worker's name tells, and a memory that all share, are left out. */
export function workersText(workers) {
  const memories = new Set(workers.map(({ memory }) => memory));
  return workers.length ? `Workers: ${workers.map((worker) => told(worker, memories.size > 1)).join(", ")}.` : "";
}

function told({ name, stages, state, becomes, memory }, tellsMemory) {
  const facts = [];
  if (!stages.every((stage) => name.includes(stage))) facts.push(stages.join(" + "));
  if (tellsMemory) facts.push(memory);
  if (state !== "serving") facts.push(becomes ? `${state}, becomes ${becomes.join(" + ")}` : state);
  return facts.length ? `${name} (${facts.join("; ")})` : name;
}
