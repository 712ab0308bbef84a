/**
 * The entry of the bundle: a widget for anywidget, and inside an HTML file of `run.save_html` the explorer.
 */

import { boot } from "./standalone.js";
import { widget } from "./widget.js";

boot();

export default widget;
