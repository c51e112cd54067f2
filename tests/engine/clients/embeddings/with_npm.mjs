// The npm packages: vectors by `openai` and by the AI SDK.

import assert from 'node:assert/strict';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { embedMany } from 'ai';
import OpenAI from 'openai';

const [baseURL, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: 'none', maxRetries: 0 });
const made = await client.embeddings.create({ model, input: ['a', 'b'] });
const provider = createOpenAICompatible({ name: 'here', baseURL });
const { embeddings } = await embedMany({ model: provider.textEmbeddingModel(model), values: ['a', 'b'], maxRetries: 0 });
assert.deepEqual(embeddings[0].slice(0, 2).map(Math.fround), made.data[0].embedding.slice(0, 2).map(Math.fround));
