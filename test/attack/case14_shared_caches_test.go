package attack_test

import (
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// Sandboxes of one source share no cache: a look-up, read or write of one reveals nothing
// to another and gives it no access.
func TestCachesAreNotShared(t *testing.T) {
	files := map[string]string{"f": "secret", "sub/g": "secret", "w": "old"}
	full := harness.New(t, binary, files)
	boxes := map[string]*harness.Sandbox{}
	const own = "own"
	flags := map[string][]string{own: append(hidesOwn.flags("f", "sub/g", "w"), "--preset", "full-access")}
	for _, flag := range []string{"--view", "--hide", "--hide=strict", "--read"} {
		flags[flag] = []string{"--preset", "read-only"}
		for _, path := range []string{"f", "sub/g", "w"} {
			if flag == "--hide=strict" {
				flags[flag] = append(flags[flag], hidesStrict.flags(path)...)
			} else {
				flags[flag] = append(flags[flag], flag, path)
			}
		}
	}
	for name := range flags {
		s := harness.New(t, binary, nil)
		s.Source = full.Source
		boxes[name] = s
	}
	untouched := full.Untouched()
	start := func(s *harness.Sandbox, flags ...string) {
		r := s.Agentfense(append(append([]string{"run", "--name", s.Name, "--detach"}, flags...), "--", "sleep", "600")...)
		if r.Code != 0 {
			t.Fatal(r.Stderr)
		}
	}
	start(full, "--preset", "full-access")
	for name, s := range boxes {
		start(s, flags[name]...)
	}
	const use = "for f in f sub/g; do stat -c %A $f; cat $f; echo; cat $f; echo; done; printf new > w; cat w; echo; stat -c %d ."
	shown := map[string]string{
		"--view": strings.Repeat("----------\n\n\n", 2) + "\n",
		"--hide": "\n\n\n\n\n", "--hide=strict": "\n\n\n\n\n",
		own:      "\n\n\n\nnew\n", // it made an entry of its own
		"--read": strings.Repeat("-r--r--r--\nsecret\nsecret\n", 2) + "old\n",
	}
	devices := map[string]string{}
	for range 2 { // before anybody and after everybody has looked
		r := full.Agentfense("exec", full.Name, "--", "sh", "-c", use)
		device := strings.TrimPrefix(r.Stdout, strings.Repeat("-rw-r--r--\nsecret\nsecret\n", 2)+"new\n")
		if len(device) == len(r.Stdout) {
			t.Errorf("full access: %q\n%s", r.Stdout, r.Stderr)
		}
		devices[device] = "full"
		for flag, s := range boxes {
			r := s.Agentfense("exec", s.Name, "--", "sh", "-c", use)
			device, ok := strings.CutPrefix(r.Stdout, shown[flag])
			if !ok {
				t.Errorf("%s: got %q, want %q\n%s", flag, r.Stdout, shown[flag], r.Stderr)
			}
			devices[device] = flag
		}
	}
	if len(devices) != 1+len(boxes) {
		t.Errorf("mounts share a device: %v", devices)
	}
	untouched()
}
