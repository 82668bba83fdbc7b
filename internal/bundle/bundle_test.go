package bundle

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/fault"
)

// The test program plays both parts, told apart by variables: joined with
// itself, it starts the copy at its end, which starts the first again.
const roleVariable = "BUNDLE_TEST_ROLE"

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(roleVariable) == "":
		os.Exit(m.Run())
	case len(os.Args) > 1 && os.Args[1] == "again":
		fmt.Println("first again, started by one of two:", Runs(os.Getppid()), "and not by init:", !Runs(1))
	case os.Getenv(variable) != "":
		playSecond()
	default:
		fmt.Println("first:", Exec(), "unsupported:", fault.Is(Exec(), fault.Unsupported))
		os.Exit(1)
	}
}

func playSecond() {
	first, err := First()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	out, err := exec.Command(first, "again").CombinedOutput()
	fmt.Printf("second %q: %s%v, variable %q\n", os.Args[1:], out, err, os.Getenv(variable))
}

func run(t *testing.T, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), roleVariable+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		out = append(out, err.Error()...)
	}
	return string(out)
}

func TestTheSecondProgramStartsWithTheSameArgumentsAndFindsTheFirst(t *testing.T) {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "joined")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if err := Join(f, bytes.NewReader(self), bytes.NewReader(self)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	want := `second ["serve" "--x"]: first again, started by one of two: true and not by init: true` + "\n" + `<nil>, variable ""` + "\n"
	if got := run(t, path, "serve", "--x"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAFileWithoutASecondProgramSaysSo(t *testing.T) {
	if got := run(t, "/proc/self/exe"); !strings.Contains(got, "make build") || !strings.Contains(got, "unsupported: true") {
		t.Errorf("got %q", got)
	}
	for name, content := range map[string]string{
		"empty": "", "short": "AFSERVER", "no mark": strings.Repeat("x", 100),
		"a length beyond the file": "\x7f\xff\xff\xff\xff\xff\xff\xff" + mark,
	} {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := second(f); !errors.Is(err, errNone) {
			t.Errorf("%s: %v, want %v", name, err, errNone)
		}
		f.Close()
	}
}

func TestTheFirstProgramHasALengthOfItsOwn(t *testing.T) {
	joined := filepath.Join(t.TempDir(), "joined")
	var b bytes.Buffer
	if err := Join(&b, strings.NewReader("first"), strings.NewReader("the second")); err != nil {
		t.Fatal(err)
	}
	for content, want := range map[string]int64{b.String(): 5, "alone": 5, "": 0} {
		if err := os.WriteFile(joined, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(joined)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if got, err := FirstSize(f); got != want || err != nil {
			t.Errorf("%q: %d, %v", content, got, err)
		}
	}
}
