// Package present writes reviews of changes for people and scripts: as a patch with
// colours, as tables, as JSON, and what the summary at the end of a run is made of. What the
// changes are and which of them carry a risk, package review decides.
package present
