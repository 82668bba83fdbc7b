package guest

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// procReader reads /proc repeatedly without garbage. PID 1 does so after each exec, and its
// heap should not grow.
type procReader struct {
	list [4096]byte
	text [1024]byte
}

// stat has fields of /proc/PID/stat (proc_pid_stat(5)).
type stat struct {
	parent, foreground int
	zombie             bool   // all threads have ended; if only the first has, the kernel shows the same state
	started            uint32 // clock ticks after the system's start, modulo 2³²
}

// stat returns the stat of a process. Errors: ENOENT or ESRCH, if there is no such process.
func (r *procReader) stat(pid int) (stat, error) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return stat{}, err
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, r.text[:])
	if err != nil {
		return stat{}, err
	}
	return parseStat(r.text[:n])
}

// ignores reports whether a process ignores a signal (SigIgn of
// proc_pid_status(5)).
func (r *procReader) ignores(pid int, sig unix.Signal) bool {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/status", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, r.list[:])
	if err != nil {
		return false
	}
	_, rest, _ := bytes.Cut(r.list[:n], []byte("\nSigIgn:\t"))
	field, _, _ := bytes.Cut(rest, []byte("\n"))
	mask, err := strconv.ParseUint(string(field), 16, 64)
	return err == nil && mask&(1<<(sig-1)) != 0
}

var errStat = errors.New("unexpected form of /proc/PID/stat")

// parseStat reads the fields after the command's name, which may contain any bytes.
func parseStat(line []byte) (stat, error) {
	const state, parent, foreground, threads, started = 0, 1, 5, 17, 19 // state, ppid, pgrp, session, tty_nr, tpgid … num_threads … starttime
	var s stat
	at := 0
	for field := range bytes.FieldsSeq(line[bytes.LastIndexByte(line, ')')+1:]) {
		var err error
		switch at {
		case state:
			s.zombie = string(field) == "Z"
		case parent:
			s.parent, err = strconv.Atoi(string(field))
		case foreground:
			s.foreground, err = strconv.Atoi(string(field))
		case threads:
			s.zombie = s.zombie && len(field) == 1 && field[0] <= '1'
		case started:
			var ticks uint64
			if ticks, err = strconv.ParseUint(string(field), 10, 64); err == nil {
				s.started = uint32(ticks)
				return s, nil
			}
		}
		if err != nil {
			return stat{}, errStat
		}
		at++
	}
	return stat{}, errStat
}

// children calls do with the pid of each child of parent. (Not every kernel has
// /proc/PID/task/*/children.)
func (r *procReader) children(parent int, do func(pid int) error) error {
	return r.processes(func(pid int, s stat) error {
		if s.parent != parent {
			return nil
		}
		return do(pid)
	})
}

// processes calls do with each process that it can see.
func (r *procReader) processes(do func(pid int, s stat) error) error {
	fd, err := unix.Open("/proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for {
		n, err := unix.ReadDirent(fd, r.list[:])
		if err != nil || n == 0 {
			return err
		}
		_, _, names := unix.ParseDirent(r.list[:n], -1, nil)
		for _, name := range names {
			pid, err := strconv.Atoi(name)
			if err != nil {
				continue
			}
			s, err := r.stat(pid)
			if err != nil {
				continue
			}
			if err := do(pid, s); err != nil {
				return err
			}
		}
	}
}

// closeInherited closes all descriptors except the standard streams, the socket and those
// of the runtime, which are anonymous inodes. Children do not inherit the remaining ones.
func closeInherited(socket int) error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < socketFD || fd == socket {
			continue
		}
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && !strings.HasPrefix(target, "anon_inode:") {
			unix.Close(fd)
		}
	}
	return unix.CloseRange(socketFD, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
}

// DropText returns the pages of the binary's code and constants to the kernel, which maps
// them again when needed. An idle process needs few of them. It is for the processes that
// run as long as the sandbox.
func DropText() {
	var all []mapping
	smaps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return
	}
	unchangedMappings(smaps, func(m mapping) { all = append(all, m) })
	smaps.Close()
	for _, m := range all { // last, because reading smaps maps pages
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED)
	}
}

type mapping struct{ start, end uintptr }

// unchangedMappings calls do with the read-only mappings of files (proc_pid_smaps(5)) that
// have only the file's content. The relocated constants of a binary differ from the file.
func unchangedMappings(smaps io.Reader, do func(mapping)) {
	var m mapping
	candidate := false
	lines := bufio.NewScanner(smaps)
	lines.Buffer(make([]byte, 0, 4096), 2*unix.PathMax)
	for lines.Scan() {
		line := lines.Bytes()
		switch {
		case len(line) == 0:
		case line[0] < 'A' || line[0] > 'Z': // start-end perms offset dev inode path
			fields := bytes.Fields(line)
			m, candidate = parseRange(fields[0])
			candidate = candidate && len(fields) >= 6 && fields[1][1] == '-' && string(fields[4]) != "0"
		case candidate && bytes.HasPrefix(line, []byte("Anonymous:")):
			if bytes.HasSuffix(line, []byte(" 0 kB")) {
				do(m)
			}
		}
	}
}

func parseRange(field []byte) (mapping, bool) {
	from, to, _ := bytes.Cut(field, []byte("-"))
	start, err := strconv.ParseUint(string(from), 16, 64)
	if err != nil {
		return mapping{}, false
	}
	end, err := strconv.ParseUint(string(to), 16, 64)
	return mapping{uintptr(start), uintptr(end)}, err == nil && end > start
}
