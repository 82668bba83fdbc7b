package service

import (
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/scratch"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// checkScratch refuses scratch directories that a sandbox of the source cannot have. Errors:
// Invalid with a limit of the disk; Precondition for rules that do not let everything in them be
// written.
func (s *Service) checkScratch(paths []scratch.Path, source record.Source, rules []policy.Rule, limits record.Limits) error {
	if err := scratch.Check(paths, limits.DiskBytes > 0 || limits.DiskInodes > 0); err != nil || len(paths) == 0 {
		return err
	}
	reserved, err := s.home.Reserved(source)
	if err != nil {
		return err
	}
	p, err := policy.Compile(rules, policy.Options{Reserved: reserved})
	if err != nil {
		return err
	}
	return scratch.CheckPolicy(p, paths)
}
