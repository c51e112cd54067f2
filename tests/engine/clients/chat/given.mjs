// What the programs for Node are given: the daemon, media whose contents are known, and a tool with references.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';

export const [baseURL, model, samples] = process.argv.slice(2);
export const apiKey = 'none';

export const picture = join(samples, 'shapes.jpg');
export const pictureQuestion = 'Tell me the color of the triangle.';
export const pictureAnswer = 'red';
export const clip = join(samples, 'shapes-motion.mp4');
export const clipQuestion = 'Tell me the color of the star.';
export const clipAnswer = 'white';

export const dataUrl = (file, type) => `data:${type};base64,${readFileSync(file).toString('base64')}`;

const point = z.object({ x: z.int().min(0).max(9), y: z.int().min(0).max(9) });

export const drawing = z.object({ colour: z.enum(['red', 'blue']), corners: z.array(point).min(1).max(2) });
export const branch = z.object({
  leaves: z.int().min(0).max(9),
  get branches() {
    return z.array(branch).max(1); // refers to itself
  },
});
