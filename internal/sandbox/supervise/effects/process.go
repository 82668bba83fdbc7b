package effects

import (
	"bytes"
	"os"
	"strconv"
)

// Process is what /proc/PID/stat tells of a process (proc_pid_stat(5)).
type Process struct {
	PID, Parent int
	Started     uint32 // clock ticks after the system's start, modulo 2³²
}

// StatFields returns the fields of /proc/PID/stat from the third, the state, on; none
// when the process has gone. They follow the command's name, which may itself
// hold parentheses.
func StatFields(pid int) [][]byte {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil
	}
	return bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
}

// ProcessOf reads of a process; zero when it has gone.
func ProcessOf(pid int) Process {
	const parent, started = 1, 19 // state, ppid … starttime
	fields := StatFields(pid)
	if len(fields) <= started {
		return Process{}
	}
	ppid, parentErr := strconv.Atoi(string(fields[parent]))
	ticks, startErr := strconv.ParseUint(string(fields[started]), 10, 64)
	if parentErr != nil || startErr != nil {
		return Process{}
	}
	return Process{PID: pid, Parent: ppid, Started: uint32(ticks)}
}

// PIDInside returns the number by which pid's own namespace knows it; 0 when it
// has gone. It is the last of NSpid in /proc/PID/status (proc_pid_status(5)).
func PIDInside(pid int) int {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(data, []byte("\nNSpid:"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	numbers := bytes.Fields(line)
	if len(numbers) == 0 {
		return 0
	}
	number, err := strconv.Atoi(string(numbers[len(numbers)-1]))
	if err != nil {
		return 0
	}
	return number
}
