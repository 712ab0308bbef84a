/**
 * Builds the bundle that the browser loads: `node build.mjs`. With `--check` it only verifies that the committed
 * bundle is up to date. The bundle is committed, so that installing the package does not need node.
 */
import { readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build, transform } from "esbuild";
import theme from "../../theme.json" with { type: "json" };

const folder = fileURLToPath(new URL(".", import.meta.url));
const target = fileURLToPath(new URL("../static/explorer.js", import.meta.url));

/** Replaces the variables of fixed values, such as var(--space-2), with those of theme.json. @param {string} css */
const themed = (css) => css.replace(/var\(--(text|space|kinds)-(\w+)\)/g, (name, group, key) => {
  const value = theme[group][key];
  if (value === undefined) throw new Error(`${name} is not in theme.json.`);
  return group === "kinds" ? value : `${value}px`;
});

/** The style sheet is imported as a string, which esbuild does not minify by itself. */
const minifiedStyle = {
  name: "minified style",
  setup({ onLoad }) {
    onLoad({ filter: /\.css$/ }, async ({ path }) => {
      const { code } = await transform(themed(await readFile(path, "utf8")), { loader: "css", minify: true });
      return { contents: code.trim(), loader: "text" };
    });
  },
};

/** Keeps only the lexer of the library marked. Its other parts have side effects, so esbuild would keep all of them. */
const lexerOnly = {
  name: "lexer only",
  setup({ onLoad }) {
    onLoad({ filter: /marked\.esm\.js$/ }, async ({ path }) => {
      const whole = await readFile(path, "utf8");
      const [, classes, names] = /^([^]*;)var \w+=new \w+;function [^]*export\{([^}]*)\};/.exec(whole) ?? [];
      const kept = names?.split(",").filter((name) => /^\w+ as (Lexer|Tokenizer)$/.test(name)) ?? [];
      if (kept.length !== 2) throw new Error(`${path} has another form than that of marked 18.`);
      return { contents: `${classes};export{${kept}};`, loader: "js" };
    });
  },
};

const { outputFiles } = await build({
  absWorkingDir: folder,
  entryPoints: ["main.js"],
  bundle: true,
  minify: true,
  write: false,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  plugins: [minifiedStyle, lexerOnly],
  banner: { js: "// Built from ../js by `npm run build`. Contains marked, (c) 2018+ MarkedJS, (c) 2011-2018 Christopher Jeffrey, MIT License." },
});
const [{ contents }] = outputFiles;
if (process.argv.includes("--check")) {
  const committed = await readFile(target).catch(() => Buffer.alloc(0));
  if (!committed.equals(contents)) {
    console.error(`${target} is out of date. Run \`npm run build\` in ${folder}.`);
    process.exit(1);
  }
} else {
  await writeFile(target, contents);
}
console.log(`${contents.length} bytes`);
