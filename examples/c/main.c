// Four answers of a frozen network, in memory that is known when this is compiled.
#include <gates_fixed.h>

#include <stdio.h>

int main(void)
{
    const float inputs[4][2] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}};
    float answers[4];
    char workspace[4096];
    if (gates_fixed_forward_workspace(4) > sizeof workspace) {
        return 1;
    }
    const gates_fixed *model = gates_fixed_select(NULL);
    const int status = gates_fixed_forward(model, 4, inputs[0], answers, workspace);
    if (status != GATES_FIXED_OK) {
        fprintf(stderr, "%s\n", gates_fixed_message(status));
        return 1;
    }
    for (int i = 0; i < 4; i++) {
        printf("%g xor %g = %g\n", inputs[i][0], inputs[i][1], answers[i]);
    }
    return 0;
}
