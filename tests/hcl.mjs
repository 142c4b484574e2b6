// HashiCorp's own reader and formatter of HCL, for the Terraform module:
//
//   node tests/hcl.mjs fmt FOLDER   names the files that `terraform fmt` would change; fails if there are any
//   node tests/hcl.mjs json FOLDER  what the files say, {name: content}

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { format } from "@cdktn/hcl-tools";
import { parse } from "@cdktn/hcl2json";

const [verb, folder] = process.argv.slice(2);
const files = readdirSync(folder).filter((name) => name.endsWith(".tf"));
const texts = files.map((name) => [name, readFileSync(join(folder, name), "utf8")]);
if (texts.length === 0) throw new Error(`${folder} has no .tf files`);

if (verb === "fmt") {
  for (const [name, text] of texts) {
    await parse(name, text);
    if ((await format(text)) !== text) {
      console.log(`${join(folder, name)} is not as \`terraform fmt\` would have it`);
      process.exitCode = 1;
    }
  }
} else if (verb === "json") {
  const said = {};
  for (const [name, text] of texts) said[name] = await parse(name, text);
  console.log(JSON.stringify(said));
} else {
  throw new Error("say fmt or json");
}
