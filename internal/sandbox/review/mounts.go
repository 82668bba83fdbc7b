package review

import (
	"bufio"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// NestedMounts returns the paths at which other file systems are mounted in
// the source, in this process's mount namespace, as far as the policy shows
// the paths and no other of them lies above. The view shows an empty directory
// there that nothing can be made in, and a file that cannot be opened.
// Errors: Internal.
func NestedMounts(s *record.Sandbox) ([]vpath.Path, error) {
	points, err := mountPoints()
	if err != nil {
		return nil, errdefs.New(errdefs.Internal, "mounts: %w", err)
	}
	source := string(s.Stored.Source.Path)
	points = slices.DeleteFunc(points, func(p string) bool { return p == source || !safefs.IsBelow(p, source) })
	w := changes.Work{Sandbox: s}
	if len(points) == 0 {
		return nil, nil
	}
	if err := w.Compile(s.Stored.Source); err != nil {
		return nil, err
	}
	var list []vpath.Path
	for _, point := range points {
		p, err := vpath.Parse(strings.TrimPrefix(point, source))
		if err != nil {
			return nil, err
		}
		if w.Policy.Decide(p).ForDir() != policy.None {
			list = append(list, p)
		}
	}
	slices.Sort(list)
	return topmost(list), nil
}

// topmost drops from the sorted list what is there twice or lies below another.
func topmost(list []vpath.Path) []vpath.Path {
	var top []vpath.Path
	for _, p := range list {
		if !slices.ContainsFunc(top, p.Within) {
			top = append(top, p)
		}
	}
	return top
}

// mountPoints lists where something is mounted (proc_pid_mountinfo(5)).
func mountPoints() ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var points []string
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadString('\n')
		if fields := strings.Fields(line); len(fields) > mountPointField {
			points = append(points, unescapeOctal(fields[mountPointField]))
		}
		if err != nil {
			break // the end
		}
	}
	return points, nil
}

const mountPointField = 4

// unescapeOctal undoes \NNN, which stands for white space and backslashes.
func unescapeOctal(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
