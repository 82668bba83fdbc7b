package serve_test

import (
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
)

func TestTheServerDescribesItself(t *testing.T) {
	s := start(t)
	health, err := healthv1.NewHealthClient(s.conn).Check(t.Context(), &healthv1.HealthCheckRequest{})
	if must(t, health, err).Status != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("health %v", health)
	}
	_, err = healthv1.NewHealthClient(s.conn).Check(t.Context(), &healthv1.HealthCheckRequest{Service: "no.such"})
	wantCode(t, err, codes.NotFound)
	services := func(client reflectionv1.ServerReflectionClient) ([]string, error) {
		stream, err := client.ServerReflectionInfo(t.Context())
		if err != nil {
			return nil, err
		}
		_ = stream.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}) // the answer tells
		answer, err := stream.Recv()
		var names []string
		for _, one := range answer.GetListServicesResponse().GetService() {
			names = append(names, one.Name)
		}
		return names, err
	}
	names, err := services(reflectionv1.NewServerReflectionClient(s.conn))
	for _, want := range []string{"sandbox.v1.CodebaseService", "sandbox.v1.SandboxService"} {
		if !slices.Contains(must(t, names, err), want) {
			t.Errorf("reflection tells of %q, not of %s", names, want)
		}
	}
	_, err = services(reflectionv1.NewServerReflectionClient(s.facesOf("").grpc.Conn))
	wantCode(t, err, codes.Unauthenticated)
}
