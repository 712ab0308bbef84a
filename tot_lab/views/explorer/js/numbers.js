/**
 * Arithmetic, growing arrays of numbers, and grouping.
 *
 * Data of lines, thoughts and calls is stored in typed arrays. The same number of objects would take a second to create
 * and half a gigabyte of memory.
 */

export const { PI, abs, ceil, cos, exp, floor, hypot, log10, max, min, round, sin, sqrt } = Math;

/** Creates an array of integers from a length (all 0) or from values. @param {any} [given] @returns {Int32Array<ArrayBuffer>} */
export const integers = (given) => new Int32Array(given);

/**
 * Enlarges the arrays of `owner` with these names, if necessary, to hold `length` numbers. Their size at least
 * doubles.
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
 * Groups the indices of `keys` by key. Keys are below `count`. The indices of a key, in ascending order, are the
 * elements of `members` from `starts[key]` to `starts[key + 1]`.
 * @param {Int32Array} keys
 * @param {number} count
 */
export function grouped(keys, count) {
  const starts = integers(count + 2);
  for (const key of keys) starts[key + 2]++;
  for (let key = 1; key <= count; key++) starts[key + 1] += starts[key];
  // `starts` is shifted by one here. While a group is filled, its entry moves to the start of the next group.
  const members = integers(keys.length);
  for (let place = 0; place < keys.length; place++) members[starts[keys[place] + 1]++] = place;
  return { starts, members };
}

/** Creates an array of numbers, all 0. @param {number} [count] @returns {Float64Array<ArrayBuffer>} */
export const floats = (count = 0) => new Float64Array(count);

/** Creates an array of bytes, all 0. @param {number} [count] @returns {Uint8Array<ArrayBuffer>} */
export const bytes = (count = 0) => new Uint8Array(count);

/** @param {number} value @param {number} least @param {number} most */
export const between = (value, least, most) => min(max(value, least), most);
