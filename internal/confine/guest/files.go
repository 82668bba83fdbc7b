package guest

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// maxOpenFiles is the hard limit of open files of a program inside. It is above the largest
// known requirement of a program (Elasticsearch: 65,535).
const maxOpenFiles = 1 << 16

// defaultOpenFiles is the default soft limit: the number that select(2) can handle.
const defaultOpenFiles = 1 << 10

// filesEnv is the environment variable with the soft limit of open files, for PID 1 and its
// leaders.
const filesEnv = "AGENTFENSE_FILES"

// FilesEnv returns the variable for PID 1's environment that gives commands the soft limit
// of open files of the process pid. That process must not be a Go program, because those
// raise their soft limit.
func FilesEnv(pid int) (string, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/limits")
	if err != nil {
		return "", err
	}
	soft, err := softFiles(string(text))
	return filesEnv + "=" + soft, err
}

// softFiles reads proc_pid_limits(5).
func softFiles(limits string) (string, error) {
	for line := range strings.Lines(limits) {
		if rest, ok := strings.CutPrefix(line, "Max open files "); ok {
			if fields := strings.Fields(rest); len(fields) > 1 {
				return fields[0], nil
			}
		}
	}
	return "", errors.New("/proc/PID/limits has no limit of open files")
}

// limitFiles sets both limits of open files, irrevocably, for the processes that this one
// starts.
func limitFiles() error {
	var now syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &now); err != nil {
		return err
	}
	limit := filesLimit(os.Getenv(filesEnv), now.Max)
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
}

// filesLimit returns the limits for the given soft limit, bounded by the hard limit.
func filesLimit(soft string, hard uint64) syscall.Rlimit {
	limit := syscall.Rlimit{Cur: defaultOpenFiles, Max: min(hard, maxOpenFiles)}
	if n, err := strconv.ParseUint(soft, 10, 64); err == nil {
		limit.Cur = n
	}
	limit.Cur = min(limit.Cur, limit.Max)
	return limit
}

// leaderEnvOf returns a leader's environment, with settings for a small process.
func leaderEnvOf() []string {
	env := []string{"GOMAXPROCS=1", "GOGC=off"}
	if soft, told := os.LookupEnv(filesEnv); told {
		env = append(env, filesEnv+"="+soft)
	}
	return env
}
