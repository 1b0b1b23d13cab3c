#include "gradus/gradus.h"
#include "gradus/models/mnist_net.h"
#include <cstdio>
using namespace gradus;
double mib(int64_t b){return b/1048576.0;}
void show(const char*n){auto s=memory_stats(); printf("%-28s live %.2f peak %.2f\n",n,mib(s.live_bytes),mib(s.peak_bytes)); reset_peak_memory();}
int main(){
  set_num_threads(2); show("start");
  models::MnistNet net; show("net");
  Tensor x=randn({64,1,28,28}), y=randint(0,10,{64}); show("data");
  GradManager gm; gm.attach(net.parameters());
  optim::SGD opt(net.parameters(), {.lr = 0.01, .momentum = 0.9, .weight_decay = 5e-4});
  for(int i=0;i<2;++i){
    { auto rec=gm.record();
    Tensor h=net.conv1(x); show("conv1"); h=relu(std::move(h)); show("relu1"); h=net.conv2(h); show("conv2"); h=relu(std::move(h)); show("relu2");
    h=max_pool2d(h,{.kernel=2}); show("pool"); h=net.dropout1(h); show("drop"); h=flatten(h,1); show("flatten"); h=net.fc1(h); show("fc1"); h=relu(std::move(h)); h=net.dropout2(h); show("drop2"); h=net.fc2(h); show("fc2");
    Tensor loss=nn::cross_entropy(h,y); h=Tensor(); show("loss");
    gm.backward(loss); show("backward");}
    opt.step(); show("opt"); opt.clear_grad(); show("clear");
  }
}
