package audit_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
)

func denied(i int) audit.PermissionDenied {
	return audit.PermissionDenied{Path: audit.Path(fmt.Sprintf("/f%d", i)), Operation: "open", Permission: "none", RuleIndex: -1, Count: 1}
}

// appendEnv makes the test binary append to the log it names.
const appendEnv = "AGENTFENSE_AUDIT_APPEND"

const perWriter = 100

func appendAsProcess() {
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	l, err := audit.Open(os.Getenv(appendEnv), audit.Options{ID: "sb"})
	for i := 0; err == nil && i < perWriter; i++ {
		err = l.Append(denied(i), denied(i))
	}
	if err == nil {
		err = l.Close()
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func TestManyWritersMakeOneChain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sb.jsonl")
	l, err := audit.Open(path, audit.Options{ID: "sb"})
	must(t, err)
	var cmds []*exec.Cmd
	for range 3 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), appendEnv+"="+path)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		must(t, cmd.Start())
		cmds = append(cmds, cmd)
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for i := range perWriter {
				if err := l.Append(denied(i), denied(i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	must(t, l.Close())
	got, err := audit.Verify(path)
	if err != nil || got.Records != 6*2*perWriter || got.Gaps != 0 {
		t.Errorf("Verify = %+v, %v, want %d records without a gap", got, err, 6*2*perWriter)
	}
}

func TestALogCanBeOpenedAgain(t *testing.T) {
	path := newLog(t, denied(1))
	must(t, open(t, path).Append(denied(2)))
	if diff := cmp.Diff([]audit.Event{denied(1), denied(2)}, events(t, path)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestOpenRefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	must(t, unix.Mkfifo(dir+"/fifo", 0o600))
	must(t, os.Symlink("elsewhere", dir+"/link"))
	must(t, os.Mkdir(dir+"/dir", 0o700))
	for name, want := range map[string]errdefs.Kind{
		"fifo": errdefs.Invalid, "link": errdefs.Invalid, "dir": errdefs.Internal, "missing/log": errdefs.NotFound,
	} {
		if _, err := audit.Open(dir+"/"+name, audit.Options{}); !errdefs.Is(err, want) || strings.Contains(err.Error(), dir) {
			t.Errorf("Open of a %s = %v, want %v without the host's path", name, err, want)
		}
		if name == "missing/log" {
			continue
		}
		if err := audit.Read(dir+"/"+name, nil); err == nil {
			t.Errorf("Read of a %s succeeds", name)
		}
	}
	if _, err := os.Lstat(dir + "/elsewhere"); err == nil {
		t.Error("Open followed the link")
	}
}

func TestAppendRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sb.jsonl")
	l := open(t, path)
	must(t, os.Remove(path))
	if err := l.Append(denied(1)); !errdefs.Is(err, errdefs.Precondition) {
		t.Errorf("Append to a removed log = %v, want Precondition", err)
	}
	must(t, l.Close())
	if err := l.Append(denied(1)); !errdefs.Is(err, errdefs.Precondition) {
		t.Errorf("Append to a closed log = %v, want Precondition", err)
	}
}

// TestATornRecordIsAccountedFor cuts the log's last record at every byte, as a
// power failure may, and goes on.
func TestATornRecordIsAccountedFor(t *testing.T) {
	path := newLog(t, denied(1), denied(2))
	data, err := os.ReadFile(path)
	must(t, err)
	head, err := os.ReadFile(path + ".head")
	must(t, err)
	begin := strings.IndexByte(string(data), '\n') + 1
	for cut := begin; cut < len(data)-1; cut++ {
		must(t, os.WriteFile(path, data[:cut], 0o600))
		must(t, os.WriteFile(path+".head", head, 0o600))
		if _, err := audit.Verify(path); !errdefs.Is(err, errdefs.Invalid) {
			t.Fatalf("cut at %d: Verify = %v, want Invalid: the head knows of a record more", cut, err)
		}
		must(t, open(t, path).Append(denied(3)))

		got := events(t, path)
		want := []audit.Event{denied(1)}
		if cut > begin {
			torn := got[2].(audit.Gap)
			if torn.Reason != audit.GapTorn || torn.Offset != int64(begin) || torn.Bytes != int64(cut-begin+1) {
				t.Fatalf("cut at %d: gap = %+v", cut, torn)
			}
			want = append(want, got[1].(audit.Malformed), torn)
		}
		want = append(want, audit.Gap{Reason: audit.GapRecordsMissing, Lost: 1}, denied(3))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("cut at %d: events (-want +got):\n%s", cut, diff)
		}
		if s, err := audit.Verify(path); err != nil || s.Lost != 1 {
			t.Fatalf("cut at %d: Verify = %+v, %v, want one lost record", cut, s, err)
		}
	}
}

func TestARecordWithoutItsNewlineIsWhole(t *testing.T) {
	path := newLog(t, denied(1), denied(2))
	info, err := os.Stat(path)
	must(t, err)
	must(t, os.Truncate(path, info.Size()-1))
	if s, err := audit.Verify(path); err != nil || s.Records != 2 {
		t.Errorf("Verify = %+v, %v, want 2 records", s, err)
	}
	must(t, open(t, path).Append(denied(3)))
	if diff := cmp.Diff([]audit.Event{denied(1), denied(2), denied(3)}, events(t, path)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// limitFileSize makes writes beyond size bytes fail, as on a full disk, until
// lift is called.
func limitFileSize(t *testing.T, size int64) (lift func()) {
	t.Helper()
	signal.Ignore(unix.SIGXFSZ)
	var old unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &old))
	lift = func() {
		must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &old))
		signal.Reset(unix.SIGXFSZ)
	}
	t.Cleanup(lift)
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: uint64(size), Max: old.Max}))
	return lift
}

func TestAFullDiskIsVisible(t *testing.T) {
	path := newLog(t, denied(1))
	l := open(t, path)
	info, err := os.Stat(path)
	must(t, err)
	lift := limitFileSize(t, info.Size()+100)
	for range 2 {
		if err := l.Append(denied(2), denied(3)); !errdefs.Is(err, errdefs.Exhausted) {
			t.Fatalf("Append = %v, want Exhausted", err)
		}
	}
	lift()
	must(t, l.Append(denied(4)))
	got := events(t, path)
	torn, _ := got[2].(audit.Gap)
	lost, _ := got[3].(audit.Gap)
	if torn.Reason != audit.GapTorn || torn.Bytes != 101 || lost.Reason != audit.GapLost || lost.Lost != 4 || lost.Error == "" {
		t.Errorf("gaps = %+v, %+v, want 101 torn bytes and 4 lost events", torn, lost)
	}
	if diff := cmp.Diff(audit.Event(denied(4)), got[4]); diff != "" || len(got) != 5 {
		t.Errorf("%d events, the last (-want +got):\n%s", len(got), diff)
	}
	if s, err := audit.Verify(path); err != nil || s.Lost != 4 || s.Gaps != 2 {
		t.Errorf("Verify = %+v, %v, want 4 lost in 2 gaps", s, err)
	}
}

func TestWhatFittedBeforeTheDiskWasFullIsNotLost(t *testing.T) {
	path := newLog(t, denied(1))
	l := open(t, path)
	info, err := os.Stat(path)
	must(t, err)
	lift := limitFileSize(t, info.Size()*5/2)
	if err := l.Append(denied(2), denied(3)); !errdefs.Is(err, errdefs.Exhausted) {
		t.Fatalf("Append = %v, want Exhausted", err)
	}
	lift()
	must(t, l.Append(denied(4)))
	if s, err := audit.Verify(path); err != nil || s.Lost != 1 {
		t.Errorf("Verify = %+v, %v, want one lost", s, err)
	}
	if diff := cmp.Diff(audit.Event(denied(2)), events(t, path)[1]); diff != "" {
		t.Errorf("second event (-want +got):\n%s", diff)
	}
}

func FuzzAppendToAnything(f *testing.F) {
	seed, err := os.ReadFile(newLog(f, denied(1), denied(2)))
	must(f, err)
	f.Add(seed)
	f.Add(seed[:len(seed)-1])
	f.Add([]byte("\n\x00{"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "sb.jsonl")
		must(t, os.WriteFile(path, data, 0o600))
		must(t, open(t, path).Append(denied(3)))
		all := events(t, path)
		if diff := cmp.Diff(audit.Event(denied(3)), all[len(all)-1]); diff != "" {
			t.Errorf("last event (-want +got):\n%s", diff)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	l := open(b, filepath.Join(b.TempDir(), "sb.jsonl"))
	for b.Loop() {
		must(b, l.Append(denied(1)))
	}
}
