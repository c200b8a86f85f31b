// Train a network until all four answers are right.
#include <gates_learning.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <vector>

int main()
{
    const std::array<double, 8> inputs = {0, 0, 0, 1, 1, 0, 1, 1};
    const std::array<double, 4> targets = {0, 1, 1, 0};
    std::array<double, 4> answers{};
    alignas(64) static unsigned char state[GATES_LEARNING_STATE_BYTES];
    std::vector<char> workspace(
        std::max(gates_learning_forward_workspace(4), gates_learning_train_step_workspace(4)));
    const gates_learning *model = gates_learning_select(nullptr);

    int status = gates_learning_state_init(state);
    bool done = false;
    for (int step = 0; status == GATES_LEARNING_OK && !done && step < 1000; step++) {
        double loss;
        status = gates_learning_train_step(
            model, state, 4, inputs.data(), targets.data(), 0.1, &loss, workspace.data());
        if (status == GATES_LEARNING_OK) {
            status = gates_learning_forward(model, state, 4, inputs.data(), answers.data(), workspace.data());
        }
        done = std::equal(answers.begin(), answers.end(), targets.begin(),
                          [](double answer, double target) { return std::abs(answer - target) < 0.1; });
        if (done || step % 20 == 0) {
            std::printf("step %3d   loss %.17g\n", step, loss);
        }
    }
    if (status != GATES_LEARNING_OK) {
        std::fprintf(stderr, "%s\n", gates_learning_message(status));
        return 1;
    }
    for (int i = 0; i < 4; i++) {
        std::printf("%g xor %g = %.17g\n", inputs[2 * i], inputs[2 * i + 1], answers[i]);
    }
}
