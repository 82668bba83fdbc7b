package apply_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

func TestOpenHomeFollowsTheEnvironment(t *testing.T) {
	dir := t.TempDir()
	tests := []struct {
		name string
		env  map[string]string
		want string // relative to dir; "" = refused
	}{
		{"AGENTFENSE_HOME comes first", map[string]string{"AGENTFENSE_HOME": dir + "/a", "XDG_DATA_HOME": dir + "/x", "HOME": dir + "/h"}, "a"},
		{"then XDG_DATA_HOME", map[string]string{"XDG_DATA_HOME": dir + "/x", "HOME": dir + "/h"}, "x/agentfense"},
		{"a relative XDG_DATA_HOME is ignored", map[string]string{"XDG_DATA_HOME": "x", "HOME": dir + "/h"}, "h/.local/share/agentfense"},
		{"then HOME", map[string]string{"HOME": dir + "/h"}, "h/.local/share/agentfense"},
		{"without any there is none", nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, err := record.OpenHome(func(key string) string { return tt.env[key] })
			if tt.want == "" {
				if !errdefs.Is(err, errdefs.Precondition) {
					t.Errorf("OpenHome = %v, want Precondition", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if want := filepath.Join(dir, tt.want); h.Dir() != want {
				t.Errorf("Dir = %s, want %s", h.Dir(), want)
			}
			for _, sub := range []string{"", "sandboxes", "audit"} {
				if info, err := os.Stat(filepath.Join(h.Dir(), sub)); err != nil || info.Mode().Perm() != 0o700 {
					t.Errorf("%s: %v, %v, want mode 0700", sub, info, err)
				}
			}
		})
	}
}

func TestOpenHomeRefusesWhatOthersCanFill(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := record.OpenHomeAt(dir); !errdefs.Is(err, errdefs.Precondition) {
		t.Errorf("a directory others can write to: %v, want Precondition", err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		if _, err := record.OpenHomeAt(dir); !errdefs.Is(err, errdefs.Precondition) {
			t.Errorf("a directory of another user: %v, want Precondition", err)
		}
	}
}

func TestResolveSource(t *testing.T) {
	h := openHome(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	refused := []struct {
		name, path string
		want       errdefs.Kind
		text       string
	}{
		{"missing", dir + "/none", errdefs.NotFound, "no such directory"},
		{"below a file", dir + "/file/x", errdefs.Invalid, "not a directory"},
		{"a file", dir + "/file", errdefs.Invalid, "not a directory"},
		{"the state directory", h.Dir(), errdefs.Invalid, "state directory"},
		{"inside the state directory's own part", h.Dir() + "/sandboxes", errdefs.Invalid, "state directory"},
	}
	for _, tt := range refused {
		t.Run(tt.name+" is refused", func(t *testing.T) {
			_, err := h.ResolveSource(tt.path)
			if !errdefs.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("ResolveSource(%s) = %v, want %v with %q", tt.path, err, tt.want, tt.text)
			}
		})
	}
	direct, err := h.ResolveSource(dir)
	if err != nil {
		t.Fatal(err)
	}
	if linked, err := h.ResolveSource(dir + "/link"); err != nil || linked != direct {
		t.Errorf("through a symbolic link: %v, %v, want %v", linked, err, direct)
	}
}

func TestResolveSourceOfARemovedDirectory(t *testing.T) {
	h := openHome(t)
	gone := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(gone, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(gone)
	t.Setenv("PWD", "")
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	if _, err := h.ResolveSource("."); !errdefs.Is(err, errdefs.Precondition) {
		t.Errorf("ResolveSource of a removed current directory = %v, want Precondition", err)
	}
}

func TestASourceIsRecognised(t *testing.T) {
	h := openHome(t)
	dir := filepath.Join(t.TempDir(), "src")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := h.Create(recordOf(t, h, dir, "fix"))
	if err != nil {
		t.Fatal(err)
	}
	own := s.Record().Source
	f, err := own.Open()
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := s.CheckSource(own); err != nil {
		t.Errorf("CheckSource of its own = %v", err)
	}
	other, err := h.ResolveSource(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	err = s.CheckSource(other)
	if !errdefs.Is(err, errdefs.Precondition) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), string(other.Path)) {
		t.Errorf("CheckSource of another = %v, want a Precondition naming both", err)
	}
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	if _, err := own.Open(); !errdefs.Is(err, errdefs.NotFound) {
		t.Errorf("Open of a source that is gone = %v, want NotFound", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := own.Open(); !errdefs.Is(err, errdefs.Precondition) {
		t.Errorf("Open of a directory put in the source's place = %v, want Precondition", err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir+".old", dir); err != nil {
		t.Fatal(err)
	}
	if _, err := own.Open(); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("Open of a symbolic link put in the source's place = %v, want Invalid", err)
	}
}

func TestReserved(t *testing.T) {
	top := t.TempDir()
	h, err := record.OpenHomeAt(filepath.Join(top, "src", ".local", "agentfense"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(top, "other"), 0o700); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, source string
		want         []vpath.Path
	}{
		{"a source that contains the state directory", "src", []vpath.Path{"/.local/agentfense"}},
		{"the root of the host", "/", []vpath.Path{vpath.Path(h.Dir())}},
		{"a source beside it", "other", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			source := tt.source
			if source != "/" {
				source = filepath.Join(top, source)
			}
			s, err := h.ResolveSource(source)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := h.Reserved(s); err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("Reserved = %v, %v, want %v", got, err, tt.want)
			}
		})
	}
}
