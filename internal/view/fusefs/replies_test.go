package fusefs_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/view/fusefs"
)

// TestNoReplyOpensAFile: the kernel uses the mode bits of the latest reply, so a reply with
// unmasked bits would permit the next open. Each case causes one kind of reply and then
// tries to open the file.
func TestNoReplyOpensAFile(t *testing.T) {
	const (
		tries  = "cat v; echo x >>r; echo x 2>&1 >d/new; cat v/. "
		denied = "cat: v: Permission denied|cannot create r: Permission denied|cannot create d/new: Permission denied|cat: v/.: Not a directory"
	)
	tests := []struct {
		reply, script, want string
	}{
		{"LOOKUP", "stat -c %a v r d; " + tries, "0|444|755|" + denied},
		{"READDIRPLUS", "ls -U >/dev/null; " + tries, denied},
		{"GETATTR, asked for anew", "until [ \"$(stat -c %a r)\" = 555 ]; do :; done; stat -c %a v; " + tries, "0|" + denied},
		{"SETATTR of a directory", "chmod 777 d; stat -c %a d; " + tries, "777|" + denied},
		{"SETATTR of a file", "chmod 6777 w/f; stat -c %a w/f; chmod 777 r; " + tries, "777|chmod: changing permissions of 'r': Permission denied|" + denied},
		{"CREATE", "umask 0; : >w/new; stat -c %a w/new; install -m 6755 w/f w/run; stat -c %a w/run; : >v", "666|755|cannot create v: Permission denied"},
		{"MKDIR", "mkdir way; touch way/x; mkdir way/to; touch way/to/x; echo in >way/to/file; cat way/to/file", "touch: cannot touch 'way/x': Permission denied|touch: cannot touch 'way/to/x': Permission denied|in"},
		{"MKDIR with bits", "mkdir -m 7777 w/sub; stat -c %a w/sub", "1777"},
		{"MKNOD", "umask 0; mkfifo -m 666 w/p; stat -c %a w/p; mkfifo r", "666|mkfifo: cannot create fifo 'r': File exists"},
		{"SYMLINK", "ln -s ../v w/l; cat w/l; stat -c %a w/l", "cat: w/l: Permission denied|777"},
		{
			"LINK", "ln w/f w/g; stat -c %a w/g; ln r w/h; ln v w/i; " + tries,
			"644|ln: failed to create hard link 'w/h' => 'r': Permission denied|ln: failed to create hard link 'w/i' => 'v': Permission denied|" + denied,
		},
		{"RENAME", "mv w/f w/moved; stat -c %a w/moved; mv w/moved r; " + tries, "644|mv: cannot move 'w/moved' to 'r': Permission denied|" + denied},
	}
	for _, tt := range tests {
		t.Run(tt.reply, func(t *testing.T) {
			v := mount(t, tree{"v": "secret", "r": "kept", "d/f": "kept", "w/f": "mine"},
				"/v=view", "/r=read", "/d=write", "/d/**=read", "/w/**=write", "/way/to/file=write")
			if strings.HasPrefix(tt.reply, "GETATTR") {
				v.guest("ls -l; stat r v d")
				v.change(func(source string) error { return os.Chmod(source+"/r", 0o777) })
				v.change(func(source string) error { return os.Chmod(source+"/v", 0o777) })
			}
			var got []string
			for line := range strings.Lines(v.guest(tt.script)) {
				if _, said, ok := strings.Cut(line, "eval: "); ok {
					line = said // of the shell itself
				}
				got = append(got, strings.TrimSpace(line))
			}
			if all := strings.Join(got, "|"); all != tt.want {
				t.Errorf("got\n%s\nwant\n%s", all, tt.want)
			}
			for name, want := range map[string]string{"v": "secret", "r": "kept", "d/f": "kept", "w/f": "mine"} {
				if b, err := os.ReadFile(v.source + "/" + name); err != nil || string(b) != want {
					t.Errorf("the source's %s holds %q, %v", name, b, err)
				}
			}
		})
	}
}

// TestEveryRequestIsOurs: an embedded method would answer requests that a new version of
// the library adds.
func TestEveryRequestIsOurs(t *testing.T) {
	for f := range reflect.TypeFor[fusefs.FS]().Fields() {
		if f.Anonymous {
			t.Errorf("%s is embedded", f.Name)
		}
	}
}
