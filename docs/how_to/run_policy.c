/* Run an exported policy with TensorFlow's C API, without Python.
 *
 *     run_policy FOLDER INPUT OUTPUT < observation
 *
 * FOLDER is a SavedModel. INPUT and OUTPUT are names of tensors, which `rrl-export --format
 * saved_model` prints, such as serving_default_observation:0. The standard input holds the bytes of
 * one observation in C order. The program prints the numbers of the output, which must be float32.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tensorflow/c/c_api.h>

static TF_Status *status;
static TF_Graph *graph;

static void check(int is_right, const char *message) {
  if (is_right) return;
  fprintf(stderr, "error: %s\n", message);
  exit(1);
}

/* Find a tensor by its name: the name of an operation, a colon, and the index of its output. */
static TF_Output find_tensor(char *name) {
  char *colon = strrchr(name, ':');
  check(colon != NULL, "INPUT and OUTPUT must end in a colon and a number");
  *colon = '\0';
  TF_Output tensor = {TF_GraphOperationByName(graph, name), atoi(colon + 1)};
  check(tensor.oper != NULL, "the policy has no tensor of this name");
  return tensor;
}

int main(int argc, char **argv) {
  check(argc == 4, "usage: run_policy FOLDER INPUT OUTPUT < observation");
  status = TF_NewStatus();
  graph = TF_NewGraph();
  TF_SessionOptions *options = TF_NewSessionOptions();
  const char *tags[] = {"serve"};
  TF_Session *session =
      TF_LoadSessionFromSavedModel(options, NULL, argv[1], tags, 1, graph, NULL, status);
  check(TF_GetCode(status) == TF_OK, TF_Message(status));

  /* The shape of the input is in the graph; its first size, the batch size, is free. */
  TF_Output input = find_tensor(argv[2]), output = find_tensor(argv[3]);
  int64_t shape[8];
  int rank = TF_GraphGetTensorNumDims(graph, input, status);
  check(rank > 0 && rank <= 8, "the rank of the input must be 1 to 8");
  TF_GraphGetTensorShape(graph, input, shape, rank, status);
  shape[0] = 1;
  size_t bytes = TF_DataTypeSize(TF_OperationOutputType(input));
  for (int i = 0; i < rank; i++) bytes *= shape[i];
  TF_Tensor *observation = TF_AllocateTensor(TF_OperationOutputType(input), shape, rank, bytes);
  check(fread(TF_TensorData(observation), 1, bytes, stdin) == bytes, "the observation is too short");

  /* A program that plays repeats this call for each observation. */
  TF_Tensor *result = NULL;
  TF_SessionRun(session, NULL, &input, &observation, 1, &output, &result, 1, NULL, 0, NULL, status);
  check(TF_GetCode(status) == TF_OK, TF_Message(status));
  check(TF_TensorType(result) == TF_FLOAT, "the output must be float32");
  const float *numbers = TF_TensorData(result);
  for (int64_t i = 0; i < TF_TensorElementCount(result); i++) printf("%.9g\n", numbers[i]);
  return 0;
}
