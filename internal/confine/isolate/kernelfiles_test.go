package isolate

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// kernelTree makes files below a directory.
func kernelTree(t *testing.T, files map[string]os.FileMode) string {
	t.Helper()
	root := t.TempDir()
	for name, mode := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil { // past the umask
			t.Fatal(err)
		}
	}
	return root
}

func TestEntriesOfProcThatNobodyKnowsAreCovered(t *testing.T) {
	root := kernelTree(t, map[string]os.FileMode{
		"meminfo": 0o444, "cmdline": 0o444, "vmmemctl": 0o444, "kmsg": 0o400,
		"spl/kstat": 0o444, "sys/dev/cdrom": 0o444, "sys/vm/x": 0o444, "sys/kernel/random/boot_id": 0o444,
	})
	if err := os.Symlink("/sys/firmware/devicetree/base", filepath.Join(root, "device-tree")); err != nil {
		t.Fatal(err)
	}
	covers, err := procCovers(root)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, c := range covers {
		got[c.Path[len(root)+1:]] = c.Dir
	}
	want := map[string]bool{"sys/dev": true, "sys/kernel/random/boot_id": false, "cmdline": false, "vmmemctl": false, "spl": true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestOfSysProcessorsAndMemoryAreShown(t *testing.T) {
	root := kernelTree(t, map[string]os.FileMode{
		"devices/system/cpu/online": 0o444, "devices/system/cpu/cpu0/thermal_throttle/count": 0o444, "devices/system/clock/x": 0o444,
		"devices/pci0000:00/vendor": 0o444, "class/net": 0o444, "fs/cgroup/x": 0o444, "fs/ext4/x": 0o444,
		"kernel/mm/x": 0o444, "kernel/boot_params/x": 0o444, "firmware/x": 0o444,
	})
	covers, err := sysCovers(root)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, path := range covers {
		got[path[len(root)+1:]] = true
	}
	want := map[string]bool{
		"devices/system/cpu/cpu0/thermal_throttle": true, "devices/system/clock": true, "devices/pci0000:00": true,
		"class": true, "fs/ext4": true, "kernel/boot_params": true, "firmware": true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
