package guest

import (
	"syscall"
	"testing"
)

func TestFilesLimit(t *testing.T) {
	tests := []struct {
		name, soft string
		hard       uint64
		want       syscall.Rlimit
	}{
		{"a usual host", "1024", 1 << 20, syscall.Rlimit{Cur: 1024, Max: maxOpenFiles}},
		{"the caller has raised it", "4096", 1 << 20, syscall.Rlimit{Cur: 4096, Max: maxOpenFiles}},
		{"above the ceiling", "1000000", 1 << 20, syscall.Rlimit{Cur: maxOpenFiles, Max: maxOpenFiles}},
		{"a low hard limit stays", "500", 600, syscall.Rlimit{Cur: 500, Max: 600}},
		{"nobody told", "", 1 << 20, syscall.Rlimit{Cur: defaultOpenFiles, Max: maxOpenFiles}},
		{"nobody told, a low hard limit", "", 600, syscall.Rlimit{Cur: 600, Max: 600}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := filesLimit(tt.soft, tt.hard); got != tt.want {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestSoftFiles(t *testing.T) {
	const limits = "Limit                     Soft Limit           Hard Limit           Units     \n" +
		"Max processes             31                   32                   processes \n" +
		"Max open files            1024                 524288               files     \n"
	if soft, err := softFiles(limits); soft != "1024" || err != nil {
		t.Errorf("got %q, %v", soft, err)
	}
	if soft, err := softFiles("Max processes 31 32 processes\n"); err == nil {
		t.Errorf("got %q of a text that does not tell", soft)
	}
}

func TestCountsByNamespace(t *testing.T) {
	tests := map[string]bool{
		"4.19.0": false, "5.4.0-150-generic": false, "5.13.19": false, "5.14.0-362.el9.x86_64": true,
		"5.15": true, "6.1.0-18-amd64": true, "6.18.44-fc": true, "10.0": true, "5.14-rc1": true, "": false, "x.y": false, "6": false,
	}
	for release, want := range tests {
		if got := countsByNamespace(release); got != want {
			t.Errorf("%q: %v, want %v", release, got, want)
		}
	}
}

// limitProcesses notices that the kernel exempts a user, such as root, from the limit.
func TestLimitHoldsIsTried(t *testing.T) {
	if got, want := limitHolds(), syscall.Geteuid() != 0; got != want {
		t.Errorf("limitHolds() is %v, want %v", got, want)
	}
}
