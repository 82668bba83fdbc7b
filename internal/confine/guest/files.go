package guest

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// mostFiles is how many files a program inside may have open: the hard limit. It
// is above what any program asks for before it starts at all (Elasticsearch:
// 65,535).
const mostFiles = 1 << 16

// usualFiles is the soft limit where nobody told another: what select(2) can take.
const usualFiles = 1 << 10

// filesEnv tells PID 1, and it its leaders, the soft limit of open files.
const filesEnv = "AGENTFENSE_FILES"

// FilesEnv is what PID 1's environment needs so that commands have the soft limit
// of open files that the process pid has, which must be no Go program: these raise
// their own.
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
	return "", errors.New("/proc/PID/limits does not tell the limit of open files")
}

// limitFiles sets both limits of open files for what this process starts, for good.
func limitFiles() error {
	var now syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &now); err != nil {
		return err
	}
	limit := filesLimit(os.Getenv(filesEnv), now.Max)
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
}

// filesLimit is the limit for a wanted soft one below a hard one.
func filesLimit(soft string, hard uint64) syscall.Rlimit {
	limit := syscall.Rlimit{Cur: usualFiles, Max: min(hard, mostFiles)}
	if n, err := strconv.ParseUint(soft, 10, 64); err == nil {
		limit.Cur = n
	}
	limit.Cur = min(limit.Cur, limit.Max)
	return limit
}

// leaderEnvOf is a leader's environment: it is small and does little.
func leaderEnvOf() []string {
	env := []string{"GOMAXPROCS=1", "GOGC=off"}
	if soft, told := os.LookupEnv(filesEnv); told {
		env = append(env, filesEnv+"="+soft)
	}
	return env
}
