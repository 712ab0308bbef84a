/**
 * The entry point of the bundle: a widget for anywidget, or the explorer in an HTML file of `run.save_html`.
 */

import { boot } from "./standalone.js";
import { widget } from "./widget.js";

boot();

export default widget;
