package guest

import (
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/agentfense/agentfense/internal/confine/landlock"
)

// Landlock is a second protection in addition to the mounts. A process inside may not read,
// execute or change a file that it reaches other than through its own mounts, nor change a
// file that is mounted read-only. The thread of PID 1 that starts the leaders applies it
// once, so that all commands are in one domain and may still trace each other. See
// docs/adr/0025.

// ownProgram is the binary of the leaders. It has no other name inside.
var ownProgram = landlock.Place{Path: "/proc/self/exe"}

// restrictToMounts restricts the calling thread, which stays locked, and all processes that
// it starts to the present mounts. Without Landlock in the kernel it does nothing.
func restrictToMounts() error {
	version := landlock.Version()
	if version == 0 {
		return nil
	}
	runtime.LockOSThread()
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	return landlock.Restrict(version, append(placesOf(string(table)), ownProgram)...)
}

// placesOf reads proc_pid_mountinfo(5). It leaves out a root that is a tmpfs: that is
// bubblewrap's, which contains only mount points.
func placesOf(table string) []landlock.Place {
	var places []landlock.Place
	for line := range strings.Lines(table) {
		before, after, _ := strings.Cut(line, " - ")
		fields, super := strings.Fields(before), strings.Fields(after)
		const point, options = 4, 5
		if len(fields) <= options || len(super) < 3 {
			continue
		}
		path := unescapeMount(fields[point])
		if path == "/" && super[0] == "tmpfs" {
			continue
		}
		readOnly := isReadOnly(fields[options]) || isReadOnly(super[2])
		places = append(places, landlock.Place{Path: path, Writable: !readOnly})
	}
	return places
}

func isReadOnly(options string) bool { return options == "ro" || strings.HasPrefix(options, "ro,") }

// unescapeMount undoes the octal escapes of a path in a mount table.
func unescapeMount(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) {
			if n, err := strconv.ParseUint(text[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}
