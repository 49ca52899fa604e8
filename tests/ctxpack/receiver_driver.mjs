// Runs docs/receivers/ctxpack.mjs on cases from standard input and prints what it made of each, as JSON lines.
import { pathToFileURL } from "node:url";

const receiver = await import(pathToFileURL(process.argv[2]));
const bytesOf = (text) => new TextEncoder().encode(text);

const acts = {
  split: async ({ text, limit }) => receiver.split(bytesOf(text), limit).map((chunk) => chunk.length),
  pack: async ({ text }) => (await receiver.packUtf8(bytesOf(text))).digest,
  read: async ({ input }) => receiver.textOf(await receiver.readPack(bytesOf(input))),
  apply: async ({ base, input }) => receiver.textOf(await receiver.applyDelta(await receiver.readPack(bytesOf(base)), bytesOf(input))),
  applyText: async ({ text, input }) => receiver.textOf(await receiver.applyDelta(await receiver.packUtf8(bytesOf(text)), bytesOf(input))),
  raw: async ({ hex }) => (await receiver.packUtf8(Uint8Array.from(Buffer.from(hex, "hex")))).digest,
  converse: async ({ urls }) => {
    const texts = [];
    let held = null;
    for (const url of urls) texts.push(receiver.textOf(held = await receiver.fetchPack(url, held)));
    return texts;
  },
};

const chunks = [];
for await (const chunk of process.stdin) chunks.push(chunk);
for (const item of JSON.parse(Buffer.concat(chunks).toString("utf8"))) {
  let result;
  try {
    result = { value: await acts[item.act](item) };
  } catch (error) {
    result = { refused: error.code ?? String(error) };
  }
  console.log(JSON.stringify(result));
}
