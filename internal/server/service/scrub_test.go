package service

import "testing"

func TestHiddenPathsAreTakenOutOfTextsWhole(t *testing.T) {
	for _, tt := range []struct{ name, path, text, want string }{
		{"below it", "/acc/t", `open "/acc/t/x": denied`, `open "(codebase)/x": denied`},
		{"itself, before a colon", "/acc/t", "stat /acc/t: denied", "stat (codebase): denied"},
		{"itself, at the end", "/acc/t", "not /acc/t", "not (codebase)"},
		{"itself, before a point", "/acc/t", "not /acc/t. Try /acc/t...", "not (codebase). Try (codebase)..."},
		{"a longer name", "/acc/t", `link "/acc/tmp/x", /acc/t-1, /acc/t_1, /acc/t.old, /acc/té, /acc/t`, `link "/acc/tmp/x", /acc/t-1, /acc/t_1, /acc/t.old, /acc/té, (codebase)`},
		{"in doubt", "/acc/t", `/acc/t mp, /acc/t\x`, `(codebase) mp, (codebase)\x`},
		{"no UTF-8, quoted", "/acc/\xff", `link "/acc/\xff/x": denied`, `link "(codebase)/x": denied`},
		{"no UTF-8, as it is", "/acc/\xff", "link /acc/\xff/x: denied", "link (codebase)/x: denied"},
		{"a quotation mark, quoted", `/acc/"t`, `link "/acc/\x22t": denied`, `link "(codebase)": denied`},
		{"a quotation mark, as it is", `/acc/"t`, `link /acc/"t: denied`, `link (codebase): denied`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var h hidden
			h.add(tt.path)
			if got := h.scrub(tt.text); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
