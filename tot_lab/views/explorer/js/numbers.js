/**
 * Arithmetic, growing arrays of numbers, and grouping.
 *
 * Data of lines, thoughts and calls is stored in typed arrays: the same number of objects would take a second and
 * half a gigabyte.
 */

export const { PI, abs, ceil, cos, exp, floor, hypot, log10, max, min, round, sin, sqrt } = Math;

/** So many integers, each 0, or those that are given. @param {any} [given] @returns {Int32Array<ArrayBuffer>} */
export const integers = (given) => new Int32Array(given);

/**
 * Gives the arrays of `owner` that have these names room for `length` numbers, if need be twice what they had.
 * @param {any} owner
 * @param {string[]} names
 * @param {number} length
 */
export function grow(owner, names, length) {
  for (const name of names) {
    const array = owner[name];
    if (array.length >= length) continue;
    owner[name] = new array.constructor(max(length, 2 * array.length));
    owner[name].set(array);
  }
}

/**
 * The places in `keys` by what stands there, each below `count`: those of a key, ascending, are `members` from
 * `starts[key]` to `starts[key + 1]`.
 * @param {Int32Array} keys
 * @param {number} count
 */
export function grouped(keys, count) {
  const starts = integers(count + 2);
  for (const key of keys) starts[key + 2]++;
  for (let key = 1; key <= count; key++) starts[key + 1] += starts[key];
  // Now a group begins one place too far, and as it fills, that place moves to where the next one begins.
  const members = integers(keys.length);
  for (let place = 0; place < keys.length; place++) members[starts[keys[place] + 1]++] = place;
  return { starts, members };
}

/** So many numbers, each 0. @param {number} [count] @returns {Float64Array<ArrayBuffer>} */
export const floats = (count = 0) => new Float64Array(count);

/** So many bytes, each 0. @param {number} [count] @returns {Uint8Array<ArrayBuffer>} */
export const bytes = (count = 0) => new Uint8Array(count);

/** @param {number} value @param {number} least @param {number} most */
export const between = (value, least, most) => min(max(value, least), most);
