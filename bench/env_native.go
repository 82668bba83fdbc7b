package main

import (
	"context"
	"os/exec"
	"path/filepath"
)

// plain is the native file system: a copy of the data that sessions change in
// place, and whose changed subtrees are copied again before the next.
type plain struct {
	disk *disk
	name string
	root string // "" = not copied yet
	wrap func(root string) []string
}

func (p *plain) Name() string { return p.name }

// Root is where the copy lies, once the place was opened.
func (p *plain) Root() string { return p.root }

func (p *plain) Open(ctx context.Context, dirty []string) (*session, error) {
	if err := p.restore(dirty); err != nil {
		return nil, err
	}
	argv := serveCommand(p.disk.Self(), p.root)
	if p.wrap != nil {
		argv = append(p.wrap(p.root), argv...)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = plainEnv()
	return startSession(ctx, cmd, func() error { return p.disk.Discard(filepath.Join(p.root, treeOut)) })
}

func (p *plain) restore(dirty []string) error {
	if p.root == "" {
		root := p.disk.path(p.name)
		if err := copyTree(p.disk.Source(), root); err != nil {
			return err
		}
		p.root = root
		return nil
	}
	for _, tree := range dirty {
		if err := p.disk.Discard(filepath.Join(p.root, tree)); err != nil {
			return err
		}
		if err := copyTree(filepath.Join(p.disk.Source(), tree), filepath.Join(p.root, tree)); err != nil {
			return err
		}
	}
	return nil
}

func (p *plain) Start(ctx context.Context) *exec.Cmd {
	argv := []string{"true"}
	if p.wrap != nil {
		argv = append(p.wrap(p.root), argv...)
	}
	return exec.CommandContext(ctx, argv[0], argv[1:]...)
}
