package docker

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// fakeDaemon answers paths with texts. A text that begins with a status is an error.
func fakeDaemon(t *testing.T, answers map[string]string) *Isolator {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, known := answers[r.URL.Path]
		if !known {
			t.Errorf("asked for %s", r.URL.Path)
		}
		var status int
		if n, _ := fmt.Sscanf(text, "%d ", &status); n == 1 {
			w.WriteHeader(status)
			text = text[4:]
		}
		fmt.Fprint(w, text)
	})}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return New(Options{Host: "unix://" + socket})
}

func TestDialJudgesTheDaemon(t *testing.T) {
	const fine = `{"OSType": "linux", "MemoryLimit": true, "PidsLimit": true, "CpuCfsPeriod": true, "CpuCfsQuota": true, "CPUShares": true}`
	all := isolate.ProcessLimits{MemoryBytes: 1 << 30, CPUs: 1, CPUShares: 512, PIDs: 10}
	tests := []struct {
		name    string
		version string
		info    string
		agreed  string // the version, if it is accepted
		text    string // of the refusal, else
	}{
		{name: "the oldest", version: `{"ApiVersion": "1.41", "MinAPIVersion": "1.12"}`, info: fine, agreed: "/v1.41"},
		{name: "a newer one that speaks the oldest", version: `{"ApiVersion": "1.51", "MinAPIVersion": "1.24"}`, info: fine, agreed: "/v1.41"},
		{name: "a newer one that does not", version: `{"ApiVersion": "1.56", "MinAPIVersion": "1.44"}`, info: fine, agreed: "/v1.44"},
		{name: "one that is too old", version: `{"ApiVersion": "1.40", "MinAPIVersion": "1.12"}`, text: `"1.40", 1.41 or later is needed`},
		{name: "one without a version", version: `{}`, text: "1.41 or later is needed"},
		{name: "no daemon at all", version: `hello`, text: "docker: answer to /version"},
		{name: "one that refuses us", version: `403 {"message": "not you"}`, text: "docker: not you"},
		{name: "a rootless one", version: `{"ApiVersion": "1.41"}`, info: strings.Replace(fine, "{", `{"SecurityOptions": ["name=seccomp,profile=default", "name=rootless"], `, 1), text: "rootless"},
		{name: "one for another system", version: `{"ApiVersion": "1.41"}`, info: `{"OSType": "windows"}`, text: "windows"},
		{name: "one that cannot limit memory", version: `{"ApiVersion": "1.41"}`, info: strings.Replace(fine, `"MemoryLimit": true`, `"MemoryLimit": false`, 1), text: "cannot limit memory"},
		{name: "one that cannot limit processes", version: `{"ApiVersion": "1.41"}`, info: strings.Replace(fine, `"PidsLimit": true`, `"PidsLimit": false`, 1), text: "cannot limit pids"},
		{name: "one that cannot limit processors", version: `{"ApiVersion": "1.41"}`, info: strings.Replace(fine, `"CpuCfsQuota": true`, `"CpuCfsQuota": false`, 1), text: "cannot limit cpu"},
		{name: "one that cannot weigh processors", version: `{"ApiVersion": "1.41"}`, info: strings.Replace(fine, `"CPUShares": true`, `"CPUShares": false`, 1), text: "cannot limit cpu shares"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := fakeDaemon(t, map[string]string{"/version": tt.version, "/v1.41/info": tt.info, "/v1.44/info": tt.info})
			a, err := d.dial(context.Background(), all)
			switch {
			case tt.text == "" && err != nil:
				t.Error(err)
			case tt.text == "" && a.version != tt.agreed:
				t.Errorf("agreed on %s, want %s", a.version, tt.agreed)
			case tt.text != "" && (!errdefs.Is(err, errdefs.Unsupported) || !strings.Contains(err.Error(), tt.text)):
				t.Errorf("got %v (%v), want %q", err, errdefs.KindOf(err), tt.text)
			}
		})
	}
}

func TestAnswersKeepTheirKinds(t *testing.T) {
	d := fakeDaemon(t, map[string]string{"/a": `400 {"message": "bad"}`, "/b": `404 {"message": "gone"}`, "/c": `409 {"message": "busy"}`, "/d": `500 x`, "/containers/x": `404 {"message": "none"}`})
	a, err := newAPI(d.host)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]errdefs.Kind{"/a": errdefs.Invalid, "/b": errdefs.NotFound, "/c": errdefs.Precondition, "/d": errdefs.Unsupported} {
		if err := a.call(context.Background(), http.MethodGet, path, nil, nil, nil); !errdefs.Is(err, want) {
			t.Errorf("%s: got %v (%v), want %v", path, err, errdefs.KindOf(err), want)
		}
	}
	if err := a.remove(context.Background(), "x"); err != nil {
		t.Errorf("remove what is not there: %v", err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := a.remove(ended, "x"); !errdefs.Is(err, errdefs.Canceled) {
		t.Errorf("a call that was given up: got %v (%v)", err, errdefs.KindOf(err))
	}
}

func TestClearAsksNobodyWhereNothingIsLeft(t *testing.T) {
	if err := New(Options{Host: "unix:///not/there"}).Clear(context.Background(), "id", t.TempDir()); err != nil {
		t.Error(err)
	}
}

func TestMountAtKnowsTheTopmost(t *testing.T) {
	table := filepath.Join(t.TempDir(), "mountinfo")
	text := `1 0 8:1 / / rw - ext4 /dev/x rw
2 1 0:30 / /with\040space/x rw shared:1 - tmpfs tmpfs rw
3 2 0:31 / /with\040space/x rw - fuse.agentfense agentfense rw
`
	if err := os.WriteFile(table, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/with space/x": "0:31", "/": "8:1", "/not": ""} {
		if got, err := mountAt(table, path); got != want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", path, got, err, want)
		}
	}
}
