// The npm package `openai`: chats, responses, files, media, tools in a loop, structured answers, errors.

import assert from 'node:assert/strict';
import { createReadStream } from 'node:fs';
import OpenAI from 'openai';
import { zodFunction, zodResponseFormat, zodTextFormat } from 'openai/helpers/zod';
import * as given from './given.mjs';

const client = new OpenAI({ baseURL: given.baseURL, apiKey: given.apiKey, maxRetries: 0 });
const asked = { model: given.model, temperature: 0, max_tokens: 600 };
const messages = [{ role: 'user', content: 'Draw.' }];

const about = (type, url, question) => [
  { role: 'user', content: [{ type, [type]: { url } }, { type: 'text', text: question }] },
];
const said = async (turns) => (await client.chat.completions.create({ ...asked, messages: turns })).choices[0].message.content;

const file = await client.files.create({ file: createReadStream(given.clip), purpose: 'vision' });
assert.equal((await client.files.retrieve(file.id)).id, file.id);
assert.ok((await said(about('image_url', given.dataUrl(given.picture, 'image/jpeg'), given.pictureQuestion))).includes(given.pictureAnswer));
assert.ok((await said(about('video_url', file.id, given.clipQuestion))).includes(given.clipAnswer));

// Tools: a stream's calls are those of the whole answer, and the library's loop sends their results back
const forced = { ...asked, messages, tool_choice: 'required', parallel_tool_calls: false };
const drawing = { ...forced, tools: [zodFunction({ name: 'draw', parameters: given.drawing })] };
const [call] = (await client.chat.completions.parse(drawing)).choices[0].message.tool_calls;
given.drawing.parse(call.function.parsed_arguments);
const streamed = await client.chat.completions.stream(drawing).finalChatCompletion();
assert.equal(streamed.choices[0].message.tool_calls[0].function.arguments, call.function.arguments);
const endless = { ...forced, tools: [zodFunction({ name: 'grow', parameters: given.branch })], max_tokens: 40 };
assert.match((await client.chat.completions.create(endless)).choices[0].finish_reason, /^(tool_calls|length)$/);
const drawn = [];
const draw = zodFunction({
  name: 'draw',
  parameters: given.drawing,
  function: (shape) => {
    drawn.push(shape);
    return 'Drawn.';
  },
});
for (const stream of [false, true]) {
  const runner = client.chat.completions.runTools(
    { ...asked, messages, tools: [draw], tool_choice: { type: 'function', function: { name: 'draw' } }, stream },
    { maxChatCompletions: 2 },
  );
  await runner.done();
}
assert.equal(drawn.length, 2);

const parsed = await client.chat.completions.parse({ ...asked, messages, response_format: zodResponseFormat(given.drawing, 'drawing') });
given.drawing.parse(parsed.choices[0].message.parsed);

// Responses
const events = client.responses.stream({ model: given.model, input: 'Draw.', text: { format: zodTextFormat(given.drawing, 'drawing') }, temperature: 0 });
given.drawing.parse((await events.finalResponse()).output_parsed);
const input = [
  {
    role: 'user',
    content: [
      { type: 'input_image', image_url: given.dataUrl(given.picture, 'image/jpeg'), detail: 'auto' },
      { type: 'input_text', text: given.pictureQuestion },
    ],
  },
];
assert.ok((await client.responses.create({ model: given.model, input, temperature: 0 })).output_text.includes(given.pictureAnswer));

await assert.rejects(client.chat.completions.create({ ...asked, messages, temperature: -1 }), { status: 400, param: 'temperature' });
