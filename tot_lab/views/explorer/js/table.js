/**
 * The rows of a sweep: filtering, sorting and the verdict of a run.
 *
 * @typedef {{name: string, model_note: string, columns: string[], rows: any[][], facts: {pack: [number, number] | null, blame: string | null,
 *   why: string | null}[]}} Sweep `sweep_page` in sweep_page.py
 */

/** The sign of a wrong run for each component to blame (`BLAMES` in blame.py). */
export const BLAMES = {
  proposer: "P", evaluator: "E", search: "S", answerer: "A", "cut short": "C", person: "H", unsolvable: "U", unknown: "?",
};

/** Columns that are not in the frame of the sweep. */
const ADDED = /** @type {const} */ (["blame", "why"]);

/** Returns the names of all columns. @param {Sweep} sweep */
export const columnsOf = ({ columns }) => [...columns, ...ADDED];

/** Returns the value of a row in a column, null if it is missing. @param {Sweep} sweep @param {number} row @param {string} column */
export function valueOf({ columns, rows, facts }, row, column) {
  const place = columns.indexOf(column);
  return (place < 0 ? facts[row][/** @type {typeof ADDED[number]} */ (column)] : rows[row][place]) ?? null;
}

/** Returns whether a run is right: true, false, or null if it is not graded. @param {Sweep} sweep @param {number} row
 * @returns {boolean | null} */
export const correctOf = (sweep, row) => valueOf(sweep, row, "correct");

/**
 * Returns the rows that match a query, or an error message. A query consists of words and of conditions, such as
 * `correct:false calls>50 setting:"ToT width=2"`.
 * @param {Sweep} sweep @param {string} query @returns {number[] | string}
 */
export function rowsMatching(sweep, query) {
  const names = columnsOf(sweep);
  let error = "";
  /** @type {((row: number) => boolean)[]} */
  const tests = [];
  const words = query.replace(
    /(?<!\S)([\w.]+)(<=|>=|[<>=:])(?:"([^"]*)"|(\S*))|"([^"]*)"/g,
    (_, column, sign, quoted, bare, alone) => {
      if (alone !== undefined) tests.push((row) => textOf(sweep, row).includes(alone.toLowerCase()));
      else if (!names.includes(column)) error = `no column ${column}; there are ${names.join(", ")}`;
      else tests.push(condition(sweep, column, sign, (quoted ?? bare).toLowerCase()));
      return "";
    },
  );
  for (const word of words.toLowerCase().split(/\s+/).filter(Boolean)) tests.push((row) => textOf(sweep, row).includes(word));
  return error || [...sweep.rows.keys()].filter((row) => tests.every((test) => test(row)));
}

/** @param {Sweep} sweep @param {number} row */
const textOf = (sweep, row) => [...sweep.rows[row], sweep.facts[row].blame, sweep.facts[row].why].join("\n").toLowerCase();

/** @param {Sweep} sweep @param {string} column @param {string} sign @param {string} wanted @returns {(row: number) => boolean} */
function condition(sweep, column, sign, wanted) {
  return (row) => {
    const value = valueOf(sweep, row, column);
    if (wanted === "none") return value === null;
    if (value === null) return false;
    if (sign === ":" && typeof value === "string") return value.toLowerCase().includes(wanted);
    if (sign === ":" || sign === "=")
      return typeof value === "number" && wanted !== "" ? value === +wanted : `${value}`.toLowerCase() === wanted;
    const [one, other] = typeof value === "number" && wanted !== "" ? [value, +wanted] : [`${value}`.toLowerCase(), wanted];
    return { "<": one < other, ">": one > other, "<=": one <= other, ">=": one >= other }[sign] ?? false;
  };
}

/**
 * Returns rows sorted by a column. Missing values are last, and equal ones keep their order.
 * @param {Sweep} sweep @param {number[]} rows @param {string} column @param {number} way 1 for ascending, -1 for descending
 */
export function sorted(sweep, rows, column, way) {
  const values = new Map(rows.map((row) => [row, valueOf(sweep, row, column)]));
  return [...rows].sort((a, b) => {
    const [one, other] = [values.get(a), values.get(b)];
    if (one === null || other === null) return Number(one === null) - Number(other === null);
    return way * (one < other ? -1 : Number(one > other));
  });
}

/** Returns the next wrong row after `row` in the order of `rows`, -1 if no run was wrong. @param {Sweep} sweep
 * @param {number[]} rows @param {number} row @param {number} way 1 for the next, -1 for the previous */
export function nextWrong(sweep, rows, row, way) {
  const wrong = rows.filter((one) => correctOf(sweep, one) === false && sweep.facts[one].pack);
  const at = wrong.indexOf(row);
  if (!wrong.length) return -1;
  if (at >= 0) return wrong[(at + way + wrong.length) % wrong.length];
  const place = rows.indexOf(row);
  const later = wrong.filter((one) => (rows.indexOf(one) - place) * way > 0);
  return (way > 0 ? later[0] : later[later.length - 1]) ?? wrong[way > 0 ? 0 : wrong.length - 1];
}
