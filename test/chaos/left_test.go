package chaos_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// identity is what everything of a sandbox bears.
type identity struct {
	ID      string `json:"id"`
	HostUID int    `json:"host_uid"`
	Served  struct {
		CodebaseID string `json:"codebase_id"`
	} `json:"served"`
	PublishAddress string `json:"publish_address"`
	Publish        []struct {
		HostPort int `json:"host_port"`
	} `json:"publish"`
}

// address is where the host has the published port, "" without one.
func (ids identity) address() string {
	if len(ids.Publish) == 0 {
		return ""
	}
	return fmt.Sprintf("%s:%d", ids.PublishAddress, ids.Publish[0].HostPort)
}

func (w *world) identity() identity {
	records, err := filepath.Glob(filepath.Join(w.s.Home, "sandboxes", "*", "sandbox.json"))
	if err != nil || len(records) != 1 {
		w.fatal("the records are %v, %v", records, err)
	}
	var ids identity
	text, err := os.ReadFile(records[0])
	if err == nil {
		err = json.Unmarshal(text, &ids)
	}
	if err != nil || ids.ID == "" {
		w.fatal("record: %v, %+v", err, ids)
	}
	return ids
}

// leftPatience is how long what was killed may take to end.
const leftPatience = 30 * time.Second

// nothingLeft fails unless everything of a removed sandbox goes.
func (w *world) nothingLeft(ids identity) {
	var left []string
	for deadline := time.Now().Add(leftPatience); ; time.Sleep(10 * time.Millisecond) {
		left = append(w.processesLeft(ids), w.mountsLeft()...)
		left = append(left, w.groupsLeft(ids)...)
		left = append(left, w.filesLeft()...)
		left = append(left, w.egressLeft()...)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			w.fatal("left after rm:\n%s", strings.Join(left, "\n"))
		}
	}
}

// processesLeft finds processes by the state directory in their command line or
// environment, and by the sandbox's uid.
func (w *world) processesLeft(ids identity) []string {
	var left []string
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well formed
	for _, dir := range dirs {
		status, _ := os.ReadFile(dir + "/status") // gone meanwhile: empty
		if strings.Contains(string(status), "\nState:\tZ") {
			continue
		}
		cmdline, _ := os.ReadFile(dir + "/cmdline")
		environment, _ := os.ReadFile(dir + "/environ")
		words := "\x00" + string(cmdline) + string(environment)
		is := strings.Contains(words, "\x00__supervise\x00"+w.s.Home+"\x00") || strings.Contains(words, "="+ids.ID+"\x00")
		for line := range strings.Lines(string(status)) {
			uid, ok := strings.CutPrefix(line, "Uid:\t")
			is = is || ok && ids.HostUID != 0 && strings.HasPrefix(uid, strconv.Itoa(ids.HostUID)+"\t")
		}
		if is {
			left = append(left, "process "+dir+" "+strings.ReplaceAll(string(cmdline), "\x00", " "))
		}
	}
	return left
}

// mountsLeft finds mounts below the state directory that any process sees.
func (w *world) mountsLeft() []string {
	var left []string
	tables, _ := filepath.Glob("/proc/[0-9]*/mountinfo")
	for _, table := range tables {
		mounts, _ := os.ReadFile(table)
		if strings.Contains(string(mounts), w.s.Home+"/sandboxes/") {
			left = append(left, "mount in "+table)
		}
	}
	return left
}

func (w *world) groupsLeft(ids identity) []string {
	var left []string
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(d.Name(), ids.ID) {
			left = append(left, "cgroup "+path)
		}
		return nil
	})
	return left
}

// filesLeft finds what is below the directory of sandboxes.
func (w *world) filesLeft() []string {
	var left []string
	entries, err := os.ReadDir(filepath.Join(w.s.Home, "sandboxes"))
	if err != nil {
		return []string{err.Error()}
	}
	for _, e := range entries {
		left = append(left, "file "+e.Name())
	}
	return left
}
