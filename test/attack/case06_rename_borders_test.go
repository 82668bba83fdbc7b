package attack_test

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// A rename moves nothing across a border of the policy: each visible entry needs write
// permission at its old and its new path, hidden entries stay, and the reply reveals only
// what the policy permits about the new name.
func TestRenameAcrossBorders(t *testing.T) {
	eachHiding(t, renameAcrossBorders)
}

func renameAcrossBorders(t *testing.T, h hiding) {
	s := harness.New(t, binary, map[string]string{
		"r/file": "r", "v/file": "v", "w/file": "w",
		"mixed/w": "w", "mixed/hidden": "secret", "mixed/sub/hidden": "secret",
		"partly/w": "w", "partly/deep/r": "r", "vault/inner": "secret", "swap/x": "x", "swap/hidden": "secret",
	})
	untouched := s.Untouched()
	policy := append(h.flags("/mixed/hidden", "/mixed/sub/hidden", "vault/", "gone/", "/swap/hidden"),
		"--preset", "full-access", "--read", "r/", "--view", "v/", "--read", "partly/deep/r")
	passes(t, s, renameAcross, h.args(), policy...)
	untouched()
	// With other rules the next run sees no more of what was hidden than
	// this one moved.
	prints(t, s, "find . -name hidden; find . -name inner; cat moved/w", "./vault/inner\nw", "--preset", "full-access")
	agentfense(t, s, "apply", s.Name)
	for path, want := range map[string]string{
		"mixed/hidden": "secret", "mixed/sub/hidden": "secret", "vault/inner": "secret", "swap/hidden": "secret",
		"moved/w": "w", "r/file": "r", "v/file": "v",
	} {
		if got := s.Read(path); got != want {
			t.Errorf("applied, %s holds %q, want %q", path, got, want)
		}
	}
	if _, err := os.Lstat(s.Source + "/moved/hidden"); err == nil {
		t.Error("applied, a hidden file moved")
	}
}

var renameAcross = program("rename across", func(in *inside, args []string) {
	h := hidingOf(args)
	rename := func(from, to string, flags uint, want unix.Errno) {
		in.errno("rename "+from+" to "+to, unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, flags), want)
	}
	// There or not, the answer is the policy's; an own entry can be moved back.
	hidden := func(from, to string, flags uint) {
		rename(from, to, flags, h.making())
		if h == hidesOwn {
			rename(to, from, unix.RENAME_NOREPLACE, 0)
		}
	}
	for _, flags := range []uint{0, unix.RENAME_NOREPLACE} {
		rename("r/file", "w/taken", flags, unix.EACCES)
		rename("v/file", "w/taken", flags, unix.EACCES)
		rename("w/file", "r/put", flags, unix.EACCES)
		rename("w/file", "v/put", flags, unix.EACCES)
		rename("vault/inner", "w/taken", flags, unix.ENOENT)
		rename("vault", "w/taken", flags, unix.ENOENT)
		rename("w/file", "vault/put", flags, unix.ENOENT)
		for _, to := range []string{"vault", "gone", "mixed/hidden"} {
			hidden("w/file", to, flags)
		}
		hidden("w", "vault", flags)
		hidden("w", "gone", flags)
	}
	rename("w/file", "r/file", 0, unix.EACCES)
	rename("w/file", "r/file", unix.RENAME_NOREPLACE, unix.EEXIST) // which its listing tells as well
	rename("w/file", "r/file", unix.RENAME_EXCHANGE, unix.EACCES)
	rename("r/file", "w/file", unix.RENAME_EXCHANGE, unix.EACCES)
	rename("w/file", "vault", unix.RENAME_EXCHANGE, unix.ENOENT)
	rename("w/file", "gone", unix.RENAME_EXCHANGE, unix.ENOENT)
	rename("w/file", "w/white", unix.RENAME_WHITEOUT, unix.EINVAL)
	// A directory with something in it that may not be moved stays.
	rename("partly", "moved partly", 0, unix.EXDEV)
	rename("partly", "w", unix.RENAME_EXCHANGE, unix.EXDEV)
	in.errno("it stayed", opened("partly/deep/r", unix.O_RDONLY), 0)

	// A directory with hidden entries moves without them. Its new place is
	// one where the policy would show them.
	rename("mixed", "moved", 0, 0)
	for _, path := range []string{"moved/hidden", "moved/sub/hidden", "mixed", "mixed/hidden"} {
		in.errno("stat "+path, unix.Lstat(path, new(unix.Stat_t)), unix.ENOENT)
	}
	in.errno("the rest moved", opened("moved/w", unix.O_RDONLY), 0)
	in.works("mkdir", os.Mkdir("mixed", 0o755))
	entries, err := os.ReadDir("mixed")
	in.works("list", err)
	in.is("entries of the directory made again", len(entries), 0)
	in.errno("create at the hidden name", opened("mixed/hidden", unix.O_CREAT|unix.O_WRONLY), h.making())
	in.works("remove it again", os.RemoveAll("mixed"))

	rename("swap", "w", unix.RENAME_EXCHANGE, 0)
	in.errno("exchanged without the hidden", unix.Lstat("w/hidden", new(unix.Stat_t)), unix.ENOENT)
	in.errno("exchanged", opened("w/x", unix.O_RDONLY), 0)
	in.errno("exchanged", opened("swap/file", unix.O_RDONLY), 0)
})
