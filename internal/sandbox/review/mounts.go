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
	"github.com/agentfense/agentfense/internal/sandbox/mountspec"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Nested is a place at which another file system is mounted: a path in the source, or in the
// source of the mount called Mount.
type Nested struct {
	Mount string
	Path  vpath.Path
}

// NestedMounts returns the places at which other file systems are mounted in
// the source and in those of the mounts, in this process's mount namespace, as far as the
// policy shows the paths and no other of them lies above. The view shows an empty directory
// there that nothing can be made in, and a file that cannot be opened.
// Errors: Internal.
func NestedMounts(s *record.Sandbox) ([]Nested, error) {
	points, err := mountPoints()
	if err != nil {
		return nil, errdefs.New(errdefs.Internal, "mounts: %w", err)
	}
	list, err := nestedIn(points, "", string(s.Stored.Source.Path), func() (*policy.Policy, error) {
		w := changes.Work{Sandbox: s}
		err := w.Compile(s.Stored.Source)
		return w.Policy, err
	})
	for _, m := range s.Stored.Mounts {
		if err != nil {
			break
		}
		var below []Nested
		switch {
		case m.Mode == mountspec.ReadOnly:
			below, err = nestedIn(points, m.Name, string(m.Source), func() (*policy.Policy, error) { return nil, nil })
		case m.Mode.HasRules():
			below, err = nestedIn(points, m.Name, string(m.Source), func() (*policy.Policy, error) {
				return policy.Compile(m.Rules, policy.Options{})
			})
		}
		list = append(list, below...)
	}
	return list, err
}

// nestedIn is NestedMounts for one source. A nil policy shows everything.
func nestedIn(points []string, mount, source string, compile func() (*policy.Policy, error)) ([]Nested, error) {
	points = slices.DeleteFunc(slices.Clone(points), func(p string) bool { return p == source || !safefs.IsBelow(p, source) })
	if len(points) == 0 {
		return nil, nil
	}
	rules, err := compile()
	if err != nil {
		return nil, err
	}
	var list []vpath.Path
	for _, point := range points {
		p, err := vpath.Parse(strings.TrimPrefix(point, source))
		if err != nil {
			return nil, err
		}
		if rules == nil || rules.Decide(p).ForDir() != policy.None {
			list = append(list, p)
		}
	}
	slices.Sort(list)
	var nested []Nested
	for _, p := range topmost(list) {
		nested = append(nested, Nested{mount, p})
	}
	return nested, nil
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
