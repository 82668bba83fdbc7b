package serve

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// mostDocker is how many times `docker run --rm` a sandbox's life may take.
const mostDocker = 1.3

// measureDocker pairs a sandbox's life on docker with a plain container's.
func measureDocker(ctx context.Context, b *bench) ([]figure, error) {
	if out, err := docker(ctx, "version", "--format", "{{.Server.Version}}").CombinedOutput(); err != nil {
		return nil, errNotHere("docker: " + strings.TrimSpace(string(out)))
	}
	if b.DockerImage == "" {
		return nil, errNotHere("no --docker-image")
	}
	codebase, err := b.smallCodebase(ctx)
	if err != nil {
		return nil, err
	}
	var own, plain durations
	var ratios []float64
	for i := range untimed + b.Rounds {
		begun := time.Now()
		if out, err := docker(ctx, "run", "--rm", "--network", "none", b.DockerImage, "true").CombinedOutput(); err != nil {
			return nil, fmt.Errorf("docker run: %w: %s", err, out)
		}
		between := time.Now()
		err := b.live(ctx, &sandboxv1.CreateSandboxRequest{
			CodebaseId: codebase, Runtime: sandboxv1.RuntimeType_RUNTIME_TYPE_DOCKER, Image: b.DockerImage,
		})
		if err != nil {
			return nil, err
		}
		if i < untimed {
			continue
		}
		p, o := between.Sub(begun), time.Since(between)
		plain, own, ratios = append(plain, p), append(own, o), append(ratios, float64(o)/float64(p))
	}
	figures := append(own.figures("a sandbox's life on docker", 0), plain.figures("docker run --rm", 0)[0])
	return append(figures, figure{Name: "ratio, median of the pairs", Unit: times, Value: median(ratios), Most: mostDocker}), nil
}

func docker(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "docker", args...)
}

func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	if len(s) == 0 {
		return 0
	}
	return s[len(s)/2]
}
