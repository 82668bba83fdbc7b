package apply_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
)

// bytesRead is how many bytes this process has asked the kernel to read so far
// (rchar, proc_pid_io(5)).
func bytesRead(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "rchar: ")
	number, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// What a killed apply has listed is looked up in the journal all at once: once
// for each path would take minutes for some thousand files.
func TestClearingUpReadsTheJournalOnce(t *testing.T) {
	const files = 400
	for name, verb := range map[string]func(*bench) error{
		"apply": func(b *bench) error {
			_, err := apply.Changes(t.Context(), b.box, apply.Options{})
			return err
		},
		"discard": func(b *bench) error {
			_, err := apply.Discard(b.box, apply.DiscardOptions{})
			return err
		},
		"discard of one path": func(b *bench) error {
			_, err := apply.Discard(b.box, apply.DiscardOptions{Paths: []vpath.Path{"/f1"}})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			tree, list := map[string]string{}, ""
			for i := range files {
				tree[fmt.Sprintf("f%d", i)] = "old\n"
				list += fmt.Sprintf("/f%d\n", i)
			}
			b := newBench(t, tree)
			b.agent(func(a *agent) {
				for i := range files {
					a.write(vpath.Path(fmt.Sprintf("/f%d", i)), "new\n")
				}
			})
			if err := os.WriteFile(filepath.Join(b.box.Dir(), "apply.lock"), []byte(list), 0o600); err != nil {
				t.Fatal(err)
			}
			journal := statOf(t, filepath.Join(b.box.LayersDir(), "base.log")).Size
			before := bytesRead(t)
			if err := verb(b); err != nil {
				t.Fatal(err)
			}
			if read, most := bytesRead(t)-before, 20*journal+files*4096; read > most {
				t.Errorf("%d bytes were read, of a journal of %d; want %d at most", read, journal, most)
			}
		})
	}
}
