package nameenc

import (
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

func TestStoredNames(t *testing.T) {
	long := strings.Repeat("n", 252)
	tests := []struct{ name, in, stored, whiteout string }{
		{"a plain name is stored as it is", "a", "a", ".wh.a"},
		{"a name that looks like a whiteout is an entry", ".wh.foo", ".wh..wh.=.wh.foo", ".wh..wh.-.wh.foo"},
		{"a name that looks like the opaque marker is an entry", ".wh..wh..opq", ".wh..wh.=.wh..wh..opq", ".wh..wh.-.wh..wh..opq"},
		{"the bare prefix is an entry", ".wh.", ".wh..wh.=.wh.", ".wh..wh.-.wh."},
		{"a name that imitates an escape is an entry", ".wh..wh.=a", ".wh..wh.=.wh..wh.=a", ".wh..wh.-.wh..wh.=a"},
		{"a whiteout that would be too long is hashed", long, long, hashMark + hashName(long) + "-"},
		{"bytes need not be UTF-8", "\xff\n", "\xff\n", ".wh.\xff\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			stored, _ := Entry(tt.in)
			whiteout, _ := Whiteout(tt.in)
			if stored != tt.stored || whiteout != tt.whiteout {
				t.Errorf("%q is stored %q and hidden by %q, want %q and %q", tt.in, stored, whiteout, tt.stored, tt.whiteout)
			}
		})
	}
}

func TestForeignStoredNamesMeanNothing(t *testing.T) {
	for _, stored := range []string{".wh.", ".wh..wh.", ".wh..wh.x", ".wh..wh.=a", ".wh..wh.-a", ".wh..wh.#", ".wh..wh.#12=", ".wh..wh.plnk"} {
		if kind, name, _ := Decode(stored); kind != KindUnknown {
			t.Errorf("Decode(%q) = %v, %q, want unknown", stored, kind, name)
		}
	}
}

func FuzzStoredNamesAreLossless(f *testing.F) {
	for _, s := range []string{"a", ".wh.a", ".wh..wh..opq", ".wh..wh.=.wh.a", ".wh..wh.#" + hashName("x") + "=", strings.Repeat("z", 255), ".wh." + strings.Repeat("z", 251)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if vpath.CheckName(name) != nil {
			t.Skip()
		}
		stored, hashed := Entry(name)
		checkStored(t, stored, name, KindEntry, hashed)
		if hashed {
			if kind, _, link := Decode(NameLink(name)); kind != KindNameLink || link != "" {
				t.Fatalf("the name beside %q is %v", name, kind)
			}
		}
		whiteout, hashed := Whiteout(name)
		checkStored(t, whiteout, name, KindWhiteout, hashed)
	})
}

func checkStored(t *testing.T, stored, name string, want Kind, hashed bool) {
	t.Helper()
	if len(stored) > vpath.NameMax {
		t.Fatalf("%q is stored in %d bytes", name, len(stored))
	}
	kind, got, link := Decode(stored)
	if kind != want || (link != "") != hashed {
		t.Fatalf("Decode(%q) = %v, link %q, want %v", stored, kind, link, want)
	}
	if hashed {
		if !Matches(stored, name) || Matches(stored, name+"x") {
			t.Fatalf("%q does not stand for %q alone", stored, name)
		}
		return
	}
	if got != name {
		t.Fatalf("Decode(%q) is about %q, want %q", stored, got, name)
	}
}
