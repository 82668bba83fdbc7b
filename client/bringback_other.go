//go:build !linux

package client

import (
	"context"
	"errors"
	"io/fs"
	"os"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/transfer/scan"
)

// noted does nothing: only Linux has the system calls that apply changes safely.
type noted struct{}

func noteUpload(string) (*noted, error) {
	return nil, errors.New("changes can be applied to an uploaded directory only on Linux")
}

func (*noted) add(scan.File, fs.FileInfo, *os.File) error { return nil }

func (*noted) remember(string, string, []PermissionRule) error { return nil }

func (*Sandbox) setUploadRules([]PermissionRule) error { return nil }

func (*Sandbox) noteFork(string, []PermissionRule) error { return nil }

func (*Sandbox) forgetUpload(context.Context) {}

type shown struct{}

func (*Sandbox) noteShown(string, []*sandboxv1.FileDiff) error { return nil }

func (*Sandbox) bringBack(context.Context, *sandboxv1.ApplyRequest) (*ApplyResult, error) {
	return nil, nil
}
