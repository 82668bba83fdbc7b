package fusefs_test

import (
	"os"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/fusefs"
	"github.com/agentfense/agentfense/internal/view/policy"
)

func TestDenialsNameTheOperation(t *testing.T) {
	tests := []struct {
		name, script string
		path         vpath.Path
		operation    string
		permission   policy.Permission
	}{
		{"reading a view file", "cat view", "/view", "open", policy.View},
		{"writing to a read file", "true >>read", "/read", "open", policy.Read},
		{"truncating a read file by name", "truncate -s 0 read", "/read", "open", policy.Read},
		{"executing a view file", "env ./view", "/view", "execve", policy.View},
		{"asking whether a read file can be written", "test -w read", "/read", "access", policy.Read},
		{"making a directory where nothing is writable", "mkdir d/x", "/d", "mkdir", policy.Read},
		{"making a file where nothing is writable", "true >d/x", "/d", "open", policy.Read},
		{"removing where nothing is writable", "rm -f d/f", "/d", "unlink", policy.Read},
		{"removing a read file beside writable ones", "rm -f read", "/read", "unlink", policy.Read},
		{"moving a read file", "mv read w/", "/read", "rename", policy.Read},
		{"linking a read file", "ln read w/l", "/read", "link", policy.Read},
		{"changing the mode of a read file", "chmod 600 read", "/read", "setattr", policy.Read},
		{"reading the target of a view link", "readlink viewlink", "/viewlink", "readlink", policy.View},
		{"looking at a none file", "stat none", "/none", "stat", policy.None},
		{"opening a none file", "cat none", "/none", "open", policy.None},
		{"opening a none file that is not there", "cat w/none", "/w/none", "open", policy.None},
		{"making a none file", "mkdir w/none", "/w/none", "mkdir", policy.None},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := mount(t, tree{"view": "#!/bin/sh\n", "read": "1", "none": "2", "viewlink": "-> x", "w/f": "3", "d/f": "4"},
				"**=read", "/w/**=write", "/new=write", "/view=view", "/viewlink=view", "/none=none", "/w/none=none")
			if err := os.Chmod(v.source+"/view", 0o755); err != nil {
				t.Fatal(err)
			}
			v.guest(tt.script)
			d := v.denied(tt.path, tt.operation)
			if d.Permission != tt.permission || d.Rule == policy.NoRule || d.Reason == "" || d.Count != 1 {
				t.Errorf("denial = %+v, want permission %s, a rule and a reason", d, tt.permission)
			}
			if d.PID <= 0 || d.Program == "" {
				t.Errorf("denial = %+v, want the process", d)
			}
		})
	}
}

func TestWhatIsNoDenialIsNotReported(t *testing.T) {
	v := mount(t, tree{"read": "1", "own": "2", "view": "3"}, "**=read", "/own=write", "/view=view")
	if err := os.Chmod(v.source+"/own", 0o400); err != nil {
		t.Fatal(err)
	}
	v.guest("cat read; stat read view own; ls -l; stat absent; true >>own; cat read; stat --cached=never read view; test -r read; readlink read")
	v.guest("cat view") // reported, after all that came before
	v.denied("/view", "open")
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, d := range v.denials {
		if d.Path != "/view" {
			t.Errorf("reported: %+v", d)
		}
	}
}

// TestRepeatedDenialsAreCounted: the first is reported at once, the others as one, at the
// latest when the mount ends.
func TestRepeatedDenialsAreCounted(t *testing.T) {
	v := mount(t, tree{"view": "1"}, "**=view")
	v.guest("exec cat view view view view view view view")
	if err := v.Unmount(); err != nil {
		t.Fatal(err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	total := 0
	for _, d := range v.denials {
		total += d.Count
	}
	if len(v.denials) != 2 || total != 7 {
		t.Errorf("%d denials that stand for %d, want 2 and 7: %+v", len(v.denials), total, v.denials)
	}
}

// TestEveryDenialIsTold: also if the handler reads the caller's system call before the
// caller sleeps.
func TestEveryDenialIsTold(t *testing.T) {
	v := mount(t, tree{"view": "1"}, "**=view")
	v.guest("f() { i=0; while [ $i -lt 1000 ]; do read x <view; i=$((i+1)); done; }; f & f & f & f & wait")
	v.Conclude(nil)
	v.mu.Lock()
	defer v.mu.Unlock()
	total := 0
	for _, d := range v.denials {
		total += d.Count
	}
	if total != 4000 {
		t.Errorf("%d of 4000 denials are told: %+v", total, v.denials)
	}
}

// TestConcludeTellsOfOneOwner counts the refusals of two owners separately, and reports a
// change again.
func TestConcludeTellsOfOneOwner(t *testing.T) {
	runtime.LockOSThread() // the file's creator writes, too
	defer runtime.UnlockOSThread()
	var owner atomic.Value
	owner.Store("first")
	v := mountSource(t, t.TempDir(), func(o *fusefs.Options) {
		o.Owner = func(int) any { return owner.Load() }
	}, "**=write", "/no=none")
	fd, err := os.OpenFile(v.path("f"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer fd.Close()
	act := func() {
		for range 3 {
			if _, err := fd.WriteString("x"); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Lstat(v.path("no")); !os.IsNotExist(err) {
				t.Fatalf("a hidden file: %v", err)
			}
		}
	}
	act()
	owner.Store("second")
	act()
	v.Conclude("first")
	counted := func() map[any]int {
		v.mu.Lock()
		defer v.mu.Unlock()
		n := map[any]int{}
		for _, d := range v.denials {
			n[d.Owner] += d.Count
		}
		return n
	}
	if diff := cmp.Diff(map[any]int{"first": 3, "second": 1}, counted()); diff != "" {
		t.Errorf("told of the first (-want +got):\n%s", diff)
	}
	act()
	v.Conclude("second")
	if diff := cmp.Diff(map[any]int{"first": 3, "second": 6}, counted()); diff != "" {
		t.Errorf("told of both (-want +got):\n%s", diff)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	want := []fusefs.ChangeKind{fusefs.Created, fusefs.Modified}
	var got []fusefs.ChangeKind
	for _, c := range v.changes {
		got = append(got, c.Kind)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

func TestAFloodOfDenialsIsBounded(t *testing.T) {
	v := mount(t, nil, "**=view", "**/no*=none")
	const probes = 3000
	v.guest("i=0; while [ $i -lt 3000 ]; do [ -e no$i ]; i=$((i+1)); done")
	if err := v.Unmount(); err != nil {
		t.Fatal(err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	total := 0
	for _, d := range v.denials {
		total += d.Count
	}
	if total != probes || len(v.denials) > 2000 {
		t.Errorf("%d denials stand for %d, want at most 2000 for %d", len(v.denials), total, probes)
	}
}

func TestAChangeIsToldBeforeItIsAnswered(t *testing.T) {
	var n atomic.Int64
	v := mountSource(t, t.TempDir(), func(o *fusefs.Options) {
		o.OnChange = func(fusefs.Change) { n.Add(1) }
	}, "**=write")
	v.write("f", "")
	for want := int64(2); want <= 100; want++ {
		if err := os.Chmod(v.path("f"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := n.Load(); got != want {
			t.Fatalf("%d changes were told, want %d", got, want)
		}
	}
}

func TestChangesAreReported(t *testing.T) {
	v := mount(t, tree{"old": "1", "gone": "2", "d/x": "3"}, "**=write")
	v.guest("echo 1 >new; echo 2 >>old; echo 3 >>old; rm gone; mv d e; mkdir m; ln -s a s; ln old hard; chmod 600 old")
	if err := v.Unmount(); err != nil {
		t.Fatal(err)
	}
	type change struct {
		kind     fusefs.ChangeKind
		path, to vpath.Path
	}
	want := []change{
		{fusefs.Created, "/new", ""},
		{fusefs.Modified, "/old", ""},
		{fusefs.Deleted, "/gone", ""},
		{fusefs.Renamed, "/d", "/e"},
		{fusefs.Created, "/m", ""},
		{fusefs.Created, "/s", ""},
		{fusefs.Created, "/hard", ""},
		{fusefs.Modified, "/old", ""},
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	at := 0
	for _, c := range v.changes {
		if at < len(want) && (change{c.Kind, c.Path, c.To}) == want[at] {
			at++
		}
		if c.PID <= 0 {
			t.Errorf("%+v names no process", c)
		}
	}
	if at < len(want) {
		t.Errorf("changes = %+v, want in this order %+v", v.changes, want)
	}
}
