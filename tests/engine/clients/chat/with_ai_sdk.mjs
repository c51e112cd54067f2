// The AI SDK, by its providers `openai-compatible` and `openai`: media, streams, tools in a loop, structured answers.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, isStepCount, Output, streamText, tool } from 'ai';
import * as given from './given.mjs';

const compatible = createOpenAICompatible({
  name: 'here',
  baseURL: given.baseURL,
  apiKey: given.apiKey,
  supportsStructuredOutputs: true,
});
const openai = createOpenAI({ baseURL: given.baseURL, apiKey: given.apiKey });
const common = { temperature: 0, maxOutputTokens: 600, maxRetries: 0 };
const look = (file, mediaType, question) => [
  { role: 'user', content: [{ type: 'file', data: readFileSync(file), mediaType }, { type: 'text', text: question }] },
];

const answers = [];
const refers = [];

for (const model of [compatible(given.model), openai.chat(given.model), openai.responses(given.model)]) {
  const asked = { ...common, model };
  const drawn = [];
  const tools = {
    draw: tool({
      description: 'Draw a shape.',
      inputSchema: given.drawing,
      execute: async (shape) => {
        drawn.push(shape);
        return 'Drawn.';
      },
    }),
    grow: tool({ inputSchema: given.branch, execute: async () => 'Grown.' }),
  };

  const looked = look(given.picture, 'image/jpeg', given.pictureQuestion);
  const seen = await generateText({ ...asked, messages: looked });
  assert.ok(seen.text.includes(given.pictureAnswer), seen.text);
  const again = await generateText({
    include: { requestBody: true },
    ...asked,
    messages: [...looked, ...seen.response.messages, { role: 'user', content: given.pictureQuestion }],
  });
  answers.push(again.text);
  refers.push(JSON.stringify(again.request.body).includes('item_reference'));

  const toolChoice = { type: 'tool', toolName: 'draw' };
  const called = await generateText({ ...asked, prompt: 'Draw.', tools, toolChoice, stopWhen: isStepCount(2) });
  assert.equal(drawn.length, 2);
  await generateText({
    ...asked,
    messages: [{ role: 'user', content: 'Draw.' }, ...called.response.messages, { role: 'user', content: 'Again.' }],
    tools,
  });
  const streamed = streamText({ ...asked, prompt: 'Draw.', tools, toolChoice, stopWhen: isStepCount(2) });
  await streamed.consumeStream({ onError: (error) => assert.fail(error) });
  assert.equal((await streamed.steps).length, 2);
  assert.ok((await streamed.steps).every((step) => step.toolCalls.length > 0));

  const made = await generateText({ ...asked, prompt: 'Draw.', output: Output.object({ schema: given.drawing }) });
  given.drawing.parse(made.output);
  assert.ok(made.usage.inputTokens > 0);
}

// One conversation, in full as a chat, and with its first answer by reference: greedy answers are the same.
assert.deepEqual(refers, [false, false, true]);
assert.equal(new Set(answers).size, 1);

const video = await generateText({ ...common, model: compatible(given.model), messages: look(given.clip, 'video/mp4', given.clipQuestion) });
assert.ok(video.text.includes(given.clipAnswer), video.text);
const thinking = await generateText({
  ...common,
  model: compatible(given.model),
  prompt: 'Draw.',
  maxOutputTokens: 8,
  providerOptions: { here: { chat_template_kwargs: { enable_thinking: true } } },
});
assert.ok(thinking.reasoningText);
